//! Finds the primary of a service by its sentinels.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, Value};
use tokio::time::timeout;

use super::address::{client_at, client_of, connect};
use super::fault::failure;
use crate::error::Error;
use crate::util::escape::shown;
use crate::util::lock::Mutex;

/// Where the server is.
pub(super) enum Place {
    Known(Client),
    /// Sentinels are asked each time that a connection is made, because another server may have become the primary.
    BySentinels(Sentinels),
}

impl Place {
    pub(super) async fn connect(&self, within: Duration) -> Result<MultiplexedConnection, String> {
        match self {
            Place::Known(client) => connect(client, within).await,
            Place::BySentinels(sentinels) => sentinels.connect(within).await,
        }
    }
}

/// The sentinels of a service.
pub(super) struct Sentinels {
    sentinels: Vec<Client>,
    service: String,
    /// The server's user, password and database, with another address.
    server: ConnectionInfo,
    /// The sentinel that has answered last. It is asked first.
    first: Mutex<usize>,
}

impl Sentinels {
    /// `name`: the store's address without secrets, for errors.
    pub(super) fn new(
        urls: &[String],
        service: String,
        server: &str,
        name: &str,
    ) -> Result<Sentinels, Error> {
        let sentinels = urls.iter().map(|url| client_of(url, name)).collect::<Result<_, _>>()?;
        let server = client_of(server, name)?.get_connection_info().clone();
        Ok(Sentinels { sentinels, service, server, first: Mutex::new(0) })
    }

    /// Connects to the primary that the first sentinel names which answers. Each step may take `within`.
    pub(super) async fn connect(&self, within: Duration) -> Result<MultiplexedConnection, String> {
        let (count, first) = (self.sentinels.len(), *self.first.lock());
        let mut last = String::new();
        for at in (first..first + count).map(|at| at % count) {
            match self.ask(&self.sentinels[at], within).await {
                Ok((host, port)) => {
                    *self.first.lock() = at;
                    let name = format!("{}:{port}", shown(&host, 80));
                    let client = client_at(&self.server, host, port);
                    let client = client.map_err(|error| failure(&error).text)?;
                    let connected = primary(&client, within).await;
                    return connected
                        .map_err(|why| format!("{name}, which the sentinels name: {why}"));
                }
                Err(why) => {
                    let sentinel = self.sentinels[at].get_connection_info().addr();
                    last = format!("{sentinel}: {why}");
                }
            }
        }
        let service = shown(&self.service, 40);
        Err(format!("none of {count} sentinels names the server of {service}; the last, {last}"))
    }

    /// Asks a sentinel for the primary's host and port.
    async fn ask(&self, sentinel: &Client, within: Duration) -> Result<(String, u16), String> {
        let mut connection = connect(sentinel, within).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let asked = question.query_async::<Option<(String, u16)>>(&mut connection);
        match timeout(within, asked).await {
            Ok(Ok(Some(server))) => Ok(server),
            Ok(Ok(None)) => Err(format!("it does not know {}", shown(&self.service, 40))),
            Ok(Err(error)) => Err(failure(&error).text),
            Err(_) => Err(format!("no answer within {within:?}")),
        }
    }
}

/// Connects to a server, and makes sure that it is a primary: sentinels may name one that has become a replica.
async fn primary(client: &Client, within: Duration) -> Result<MultiplexedConnection, String> {
    let mut connection = connect(client, within).await?;
    let question = redis::cmd("ROLE");
    match timeout(within, question.query_async::<Value>(&mut connection)).await {
        Ok(Ok(Value::Array(role))) if role.first() != Some(&Value::BulkString("master".into())) => {
            Err("it is a replica".into())
        }
        // Not known, such as for a user that may not ask for the role: the first call that writes tells.
        Ok(_) => Ok(connection),
        Err(_) => Err(format!("no answer within {within:?}")),
    }
}
