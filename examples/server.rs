//! A small HTTP server that tollgate limits: each client by its address.
//!
//!     cargo run --release --example server -- --port 8080 --log access.log
//!
//! It answers `/`, `/health` and `/search?q=...` with 200, anything else with 404, and a client that
//! asks too often with 429 and the seconds to wait. Every request is a line of the access log, in the
//! combined format, which `tollgate replay` reads.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};

use tollgate::{Handle, Limiter, Limits, SweepOptions};

/// Connections served at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 64;
/// Requests on one connection; a client connects anew for more.
const REQUESTS_MAX: usize = 1_000;
/// The longest request line with its headers.
const HEAD_MAX_BYTES: u64 = 8_192;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(5);

struct Args {
    port: u16,
    limits: PathBuf,
    log: PathBuf,
}

/// What the log and the answer need of a request.
struct Request {
    line: String,
    referer: String,
    user_agent: String,
    keep_alive: bool,
}

struct Response {
    status: &'static str,
    retry_after_s: Option<u128>,
    body: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse()?;
    // All there is to embedding: read the limits, keep a handle for each, spend on every request.
    let limiter = Limiter::new(Limits::from_yaml_files(&args.limits, None)?);
    let requests = limiter.limit("RequestsPerClient")?;
    // Drops the buckets of clients that are gone, until the end of this scope.
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let log = Mutex::new(File::options().create(true).append(true).open(&args.log)?);
    let listener = TcpListener::bind(("127.0.0.1", args.port))?;
    eprintln!("listening on http://{}, logging to {}", listener.local_addr()?, args.log.display());
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS_MAX {
            scope.spawn(|| {
                loop {
                    // A client that breaks off is no fault of the server's.
                    let _ = listener.accept().and_then(|(peer, _)| serve(&peer, &requests, &log));
                }
            });
        }
    });
    Ok(())
}

/// Answers the requests of one connection until either side has had enough.
fn serve(peer: &TcpStream, requests: &Handle, log: &Mutex<File>) -> io::Result<()> {
    peer.set_read_timeout(Some(IDLE))?;
    peer.set_write_timeout(Some(IDLE))?;
    peer.set_nodelay(true)?;
    let client = peer.peer_addr()?.ip();
    let mut reader = BufReader::new(peer);
    for nth in 1..=REQUESTS_MAX {
        let Some(request) = Request::read(&mut reader)? else { break };
        let response = answer(&request, client, requests);
        let time = utc(SystemTime::now());
        let keep_alive = request.keep_alive && nth < REQUESTS_MAX;
        let (status, bytes) = (&response.status[..3], response.body.len());
        let Request { line, referer, user_agent, .. } = &request;
        let entry = format!(
            "{client} - - [{time}] \"{line}\" {status} {bytes} \"{referer}\" \"{user_agent}\"\n"
        );
        // One write a line: whatever ends the server, the log has whole lines.
        log.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write_all(entry.as_bytes())?;

        let mut head = format!("HTTP/1.1 {}\r\nContent-Length: {bytes}\r\n", response.status);
        if let Some(seconds) = response.retry_after_s {
            head += &format!("Retry-After: {seconds}\r\n");
        }
        head += if keep_alive { "\r\n" } else { "Connection: close\r\n\r\n" };
        (&mut &*peer).write_all((head + &response.body).as_bytes())?;
        if !keep_alive {
            break;
        }
    }
    Ok(())
}

/// Spends one unit of the client's bucket, and answers what it asked for if that was there.
fn answer(request: &Request, client: IpAddr, requests: &Handle) -> Response {
    let response = |status, body: &str| Response { status, retry_after_s: None, body: body.into() };
    let decision = match requests.spend(client, 1) {
        Ok(decision) => decision,
        // Not with this file: a cost of 1 is never above a burst, and an address is an ipAddress.
        Err(error) => return response("500 Internal Server Error", &format!("{error}\n")),
    };
    if !decision.allowed() {
        // Rounded up, so that who waits as told is not denied again.
        let seconds = decision.retry_in().as_nanos().div_ceil(1_000_000_000).max(1);
        let body = "too many requests\n".into();
        return Response { status: "429 Too Many Requests", retry_after_s: Some(seconds), body };
    }
    let mut words = request.line.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    match target.split_once('?').unwrap_or((target, "")) {
        _ if method != Some("GET") => response("405 Method Not Allowed", "only GET\n"),
        ("/", _) => response("200 OK", "a server that tollgate limits\n"),
        ("/health", _) => response("200 OK", "ok\n"),
        ("/search", query) => response("200 OK", &format!("nothing found for {query:?}\n")),
        _ => response("404 Not Found", "not found\n"),
    }
}

impl Request {
    /// The next request; `None` when the connection ends, or what comes is no HTTP.
    fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
        let mut head = reader.take(HEAD_MAX_BYTES);
        let Some(line) = read_line(&mut head)? else { return Ok(None) };
        if line.split(' ').count() != 3 || !line.contains(" HTTP/1.") {
            return Ok(None);
        }
        // Whatever else has a body, or is answered without one, is the connection's last request.
        let keep_alive = line.starts_with("GET ") && line.ends_with("1.1");
        let none = String::from("-");
        let mut request = Request { line, referer: none.clone(), user_agent: none, keep_alive };
        loop {
            let Some(line) = read_line(&mut head)? else { return Ok(None) };
            let Some((name, value)) = line.split_once(':') else {
                return Ok(line.is_empty().then_some(request));
            };
            let value = value.trim();
            match &*name.to_ascii_lowercase() {
                "user-agent" => request.user_agent = value.into(),
                "referer" => request.referer = value.into(),
                "connection" => request.keep_alive &= !value.eq_ignore_ascii_case("close"),
                "content-length" | "transfer-encoding" => request.keep_alive = false,
                _ => {}
            }
        }
    }
}

/// The time as the log has it, such as `20/Nov/2025:11:40:28 +0000`.
fn utc(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut days, second) = (since_epoch / 86_400, since_epoch % 86_400);
    let leap = |year: u64| u64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    let days_in = |year, month| DAYS[month] + if month == 1 { leap(year) } else { 0 };
    let (mut year, mut month) = (1970, 0);
    while days >= days_in(year, month) {
        days -= days_in(year, month);
        (year, month) = if month == 11 { (year + 1, 0) } else { (year, month + 1) };
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{:02}/{}/{year}:{hour:02}:{minute:02}:{second:02} +0000", days + 1, MONTHS[month])
}

/// A line up to CRLF, safe to put into the log; `None` if the connection or the room ends before.
fn read_line(head: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    head.read_until(b'\n', &mut bytes)?;
    let Some(bytes) = bytes.strip_suffix(b"\n") else { return Ok(None) };
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let mut line = String::new();
    for &byte in bytes {
        match byte {
            // As Apache has it: what a client sends cannot end a field or a line of the log.
            b'"' | b'\\' | 0..32 | 127.. => {
                write!(line, "\\x{byte:02x}").map_err(io::Error::other)?
            }
            _ => line.push(char::from(byte)),
        }
    }
    Ok(Some(line))
}

impl Args {
    fn parse() -> Result<Args, String> {
        let limits = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/limits.yml").into();
        let mut args = Args { port: 8080, limits, log: "access.log".into() };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let value = given.next().ok_or_else(|| format!("{name} wants a value"))?;
            match &*name {
                "--port" => args.port = value.parse().map_err(|_| format!("{value} is no port"))?,
                "--limits" => args.limits = value.into(),
                "--log" => args.log = value.into(),
                _ => {
                    return Err(format!(
                        "unknown argument {name}: --port, --limits, --log are known"
                    ));
                }
            }
        }
        Ok(args)
    }
}
