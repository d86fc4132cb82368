//! Drives a browser through ChromeDriver, by the few WebDriver calls that a test of a page needs, as JSON over HTTP/1.1.
//! Clicks are the browser's own, at the element's visible position.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const MISSING: &str = "this test needs Chromium and its ChromeDriver in the PATH: \
    `apt-get install chromium chromium-driver` on Debian, which `.ci/run` does by itself";

/// Longer than a page takes to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of an element's id in answers, which the WebDriver standard defines.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(crate) struct Browser {
    session: String,
    driver: Driver,
    _profile: tempfile::TempDir,
}

/// An element of the page.
pub(crate) struct Element<'b> {
    browser: &'b Browser,
    id: String,
}

struct Driver {
    process: Child,
    port: u16,
    /// Stays open, because a program that prints into a closed pipe ends.
    _stdout: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts a headless browser with an empty profile, which can reach only this machine.
    pub(crate) fn start() -> Browser {
        let driver = Driver::start();
        let profile = tempfile::tempdir().unwrap();
        let user_data = format!("--user-data-dir={}", profile.path().display());
        let args = [
            "--headless",
            // Continuous integration often runs as root, where Chromium needs this option. It opens only this
            // project's page.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--window-size=1000,900",
            &user_data,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = driver.ask("POST", "/session", &wanted).unwrap_or_else(|error| {
            panic!("{MISSING}. ChromeDriver is there, and starts no browser: {error}")
        });
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        Browser { session, driver, _profile: profile }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.driver.ask(method, &path, body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({"url": url}));
    }

    /// Waits for an element.
    pub(crate) fn find(&self, selector: &str) -> Element<'_> {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = wait_for(selector, || {
            let found = self.ask("POST", "/elements", &wanted);
            found[0][ELEMENT].as_str().map(ToOwned::to_owned)
        });
        Element { browser: self, id: found }
    }

    /// Runs a function's body in the page. Returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.ask("POST", "/window/rect", &json!({"width": width, "height": height}));
    }

    /// Sends a command of the browser's DevTools protocol.
    pub(crate) fn tell(&self, command: &str, parameters: Value) {
        let body = json!({"cmd": command, "params": parameters});
        self.ask("POST", "/goog/cdp/execute", &body);
    }

    /// Returns the browser's log since the last call: errors of scripts, violations of the page's policy, and responses
    /// with an error status.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({"type": "browser"}));
        let lines = log.as_array().expect("a log").iter();
        lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends next, also if this fails.
        let _ = self.driver.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
    }
}

impl Element<'_> {
    fn ask(&self, method: &str, what: &str) -> Value {
        self.browser.ask(method, &format!("/element/{}/{what}", self.id), &json!({}))
    }

    pub(crate) fn click(&self) {
        self.ask("POST", "click");
    }

    /// Returns the visible text.
    pub(crate) fn text(&self) -> String {
        self.ask("GET", "text").as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn attribute(&self, name: &str) -> String {
        self.ask("GET", &format!("attribute/{name}")).as_str().unwrap_or_default().to_owned()
    }

    /// Returns the label that a screen reader reads.
    pub(crate) fn label(&self) -> String {
        self.ask("GET", "computedlabel").as_str().unwrap_or_default().to_owned()
    }
}

/// Repeats a check until it returns a value, and fails after `PATIENCE`.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Driver {
    fn start() -> Driver {
        let started = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
        let mut process =
            started.unwrap_or_else(|error| panic!("{MISSING} (chromedriver: {error})"));
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let port = (&mut stdout).lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        match port {
            Some(port) => Driver { process, port, _stdout: stdout },
            None => {
                let _ = process.kill();
                panic!("{MISSING}. ChromeDriver has not printed its port: {:?}", process.wait());
            }
        }
    }

    /// Returns the answer's value, or the error.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let asked = self.exchange(method, path, &body.to_string());
        let (status, body) =
            asked.map_err(|error| format!("no answer of ChromeDriver: {error}"))?;
        let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        let value = answer["value"].clone();
        if status.contains(" 200 ") { Ok(value) } else { Err(value["message"].to_string()) }
    }

    /// Returns the answer's first line and its body. ChromeDriver leaves the connection open although the request asks it to
    /// close, so this reads the length.
    fn exchange(&self, method: &str, path: &str, body: &str) -> io::Result<(String, String)> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = if method == "GET" { "" } else { body };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.port,
            body.len(),
        );
        (&stream).write_all(request.as_bytes())?;
        let mut answer = BufReader::new(stream);
        let (mut status, mut length) = (String::new(), 0);
        answer.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        Ok((status, String::from_utf8(body).map_err(io::Error::other)?))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
