//! Makes clients of addresses, and connects them.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError,
    RedisResult,
};
use tokio::time::timeout;

use super::fault::failure;
use crate::error::{Error, ErrorKind};

/// Makes the client of a server's URL. `name`: the store's address without secrets, for the error.
pub(super) fn client_of(url: &str, name: &str) -> Result<Client, Error> {
    let invalid = |error: RedisError| {
        let text = format!("the address {name} of the store is invalid: {}", error.category());
        Error::new(ErrorKind::Store, text)
    };
    let info = url.into_connection_info().map_err(invalid)?;
    opened(info).map_err(invalid)
}

/// Makes the client of a server that has the user, password, database and TLS of another one.
pub(super) fn client_at(like: &ConnectionInfo, host: String, port: u16) -> RedisResult<Client> {
    let address = match like.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    opened(like.clone().set_addr(address))
}

fn opened(info: ConnectionInfo) -> RedisResult<Client> {
    // Else a call waits for the answer to the one before.
    Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// Connects to a server, with an own limit of time.
pub(super) async fn connect(
    client: &Client,
    within: Duration,
) -> Result<MultiplexedConnection, String> {
    // The deadlines of calls are those of `Link::ask`.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    match timeout(within, client.get_multiplexed_async_connection_with_config(&config)).await {
        Ok(connected) => connected.map_err(|error| failure(&error).text),
        Err(_) => Err(format!("no connection within {within:?}")),
    }
}
