//! Address of a collector.

use std::collections::BTreeMap;

use crate::tls::{self, Tls};

/// Reason why there is no destination.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--otlp {place}: {why}")]
pub struct EndpointError {
    /// The given address, without credentials.
    place: String,
    why: String,
}

/// A collector, and what it wants to be reported with each request.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) metrics: String,
    pub(crate) logs: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) tls: Tls,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers hold credentials.
        let Self { metrics, logs, .. } = self;
        f.debug_struct("Endpoint").field("metrics", metrics).field("logs", logs).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// From the address that was given, as OpenTelemetry reads OTEL_EXPORTER_OTLP_ENDPOINT:
    /// `v1/metrics` and `v1/logs` come behind it. `environment` may name another address for logs
    /// (OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, which is taken as it is) and headers
    /// (OTEL_EXPORTER_OTLP_HEADERS, see [`pairs`]), where credentials belong, and for
    /// `https://` a file with the authorities that are believed (OTEL_EXPORTER_OTLP_CERTIFICATE).
    ///
    /// # Errors
    /// [`EndpointError`] in a sentence, which repeats no credentials.
    pub fn new(url: &str, environment: &BTreeMap<String, String>) -> Result<Self, EndpointError> {
        check(url)?;
        let base = url.trim_end_matches('/');
        let logs = match environment.get("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT") {
            Some(logs) => {
                check(logs)?;
                logs.clone()
            }
            None => format!("{base}/v1/logs"),
        };
        let headers = environment.get("OTEL_EXPORTER_OTLP_HEADERS").map_or("", String::as_str);
        let headers =
            pairs("OTEL_EXPORTER_OTLP_HEADERS", headers).map_err(|error| wrong(url, &error.to_string()))?;
        // After they were decoded: a line's end in a value would begin a header of its own.
        let printable = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        if headers.iter().any(|(name, value)| !is_name(name) || !printable(value)) {
            let why = "OTEL_EXPORTER_OTLP_HEADERS: a name or a value contains a character that is not allowed in a header";
            return Err(wrong(url, why));
        }
        let metrics = format!("{base}/v1/metrics");
        let secret = [&metrics, &logs].into_iter().any(|url| url.starts_with("https://"));
        let authorities = environment.get(tls::AUTHORITIES).filter(|file| !file.is_empty());
        let tls = if secret { Tls::new(authorities.map(String::as_str)) } else { Ok(Tls::default()) };
        Ok(Self { metrics, logs, headers, tls: tls.map_err(|why| wrong(url, &why))? })
    }

    /// The variables that `new` reads from this process's environment.
    pub fn environment() -> BTreeMap<String, String> {
        std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")).collect()
    }
}

/// A variable of OpenTelemetry's that is no list of names and values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable}: expected NAME=VALUE,NAME=VALUE, percent-encoded (a space is %20, a comma %2C, a percent sign %25)"
)]
pub struct PairsError {
    /// The variable.
    variable: &'static str,
}

/// Values of a variable of OpenTelemetry, `NAME=VALUE,NAME=VALUE`: names and values are
/// percent-encoded, as in W3C Baggage (a space, a comma, a percent sign is `%20`, `%2C`, `%25`).
///
/// # Errors
/// [`PairsError`], which repeats nothing of it: there may be credentials.
pub fn pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, PairsError> {
    let pair = |one: &str| {
        let (name, value) = one.split_once('=')?;
        let name = decoded(name.trim())?;
        if name.is_empty() { None } else { Some((name, decoded(value.trim())?)) }
    };
    let all = text.split(',').filter(|one| !one.trim().is_empty()).map(pair).collect::<Option<_>>();
    all.ok_or(PairsError { variable })
}

/// Without its percent-encoding; `None` where that is none, or no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).ok()
}

fn wrong(url: &str, why: &str) -> EndpointError {
    // Tokens are found in queries, too.
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let place = match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{}", host.split(['?', '#', '/']).next().unwrap_or_default()),
        None => plain.to_owned(),
    };
    EndpointError { place, why: why.to_owned() }
}

/// Before anything is measured: an address that cannot be one is a mistake of whoever gave it.
fn check(url: &str) -> Result<(), EndpointError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(wrong(
            url,
            "expected http://HOST:PORT or https://HOST:PORT, with a path if the collector needs one",
        ));
    };
    let host = rest.split('/').next().unwrap_or_default();
    // Anywhere: a password may hold a slash.
    if rest.contains('@') {
        return Err(wrong(
            url,
            "it must not contain credentials, because a run stores its command line: set OTEL_EXPORTER_OTLP_HEADERS",
        ));
    }
    match scheme {
        "http" | "https" if host.is_empty() => Err(wrong(url, "the host's name is missing")),
        "http" | "https"
            if url.bytes().any(|byte| !(0x21..0x7f).contains(&byte)) || url.contains(['?', '#']) =>
        {
            Err(wrong(
                url,
                "expected http://HOST:PORT/PATH or https://…, without spaces, queries and fragments",
            ))
        }
        "http" | "https" => Ok(()),
        _ => Err(wrong(url, "expected http://HOST:PORT or https://HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_behind_and_headers_are_read() {
        let none = BTreeMap::new();
        let plain = Endpoint::new("http://127.0.0.1:4318/", &none).unwrap();
        assert_eq!(plain.metrics, "http://127.0.0.1:4318/v1/metrics");
        assert_eq!(plain.logs, "http://127.0.0.1:4318/v1/logs");
        let environment: BTreeMap<String, String> = [
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:9428/insert/opentelemetry/v1/logs"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer abc=, x=1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let other = Endpoint::new("http://vm:8428/opentelemetry", &environment).unwrap();
        assert_eq!(other.metrics, "http://vm:8428/opentelemetry/v1/metrics");
        assert!(other.logs.ends_with("/insert/opentelemetry/v1/logs"));
        assert_eq!(other.headers[0], ("Authorization".to_owned(), "Bearer abc=".to_owned()));
        assert!(!format!("{other:?}").contains("abc"));
    }

    /// As the specification has them, and as its own libraries write them.
    #[test]
    fn variables_are_percent_encoded() {
        let with = |headers: &str| {
            let environment = [("OTEL_EXPORTER_OTLP_HEADERS".to_owned(), headers.to_owned())].into();
            Endpoint::new("http://collector:4318", &environment)
        };
        let headers =
            with("Authorization=Basic%20dXNlcjpo%2bdXNo%3D%3d, x%2Dscope = a%2Cb;c=+%25 ,").unwrap().headers;
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [own("Authorization", "Basic dXNlcjpo+dXNo=="), own("x-scope", "a,b;c=+%")]);
        for bad in [
            "a=hush%2",
            "a=hush%zz",
            "a=hush%+1",
            "a=hush%0d%0Ab: c",
            "a=hush%ff",
            "hush",
            "=hush",
            "a:=hush",
            "a%20b=hush",
        ] {
            let error = with(bad).unwrap_err().to_string();
            assert!(error.contains("OTEL_EXPORTER_OTLP_HEADERS: ") && !error.contains("hush"), "{error}");
        }
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        assert_eq!(
            pairs(name, "site=Hall%20%C3%84,empty=").unwrap(),
            [own("site", "Hall \u{c4}"), own("empty", "")]
        );
        assert_eq!(pairs(name, " ").unwrap(), []);
    }

    #[test]
    fn authorities_are_read_before_anything_is_sent() {
        let folder = std::env::temp_dir();
        let with = |file: &str| {
            let environment = [(tls::AUTHORITIES.to_owned(), file.to_owned())].into();
            Endpoint::new("https://collector", &environment)
        };
        if !cfg!(feature = "tls") {
            assert!(with("").unwrap_err().to_string().contains("--features tls"));
            return;
        }
        assert!(with("").is_ok());
        for file in ["/proc/self/no-such-file", "/proc/self/status", "/dev/zero", folder.to_str().unwrap()] {
            let error = with(file).unwrap_err().to_string();
            assert!(error.contains(&format!("{}={file}: ", tls::AUTHORITIES)), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_a_collector_is_refused_without_its_credentials() {
        let none = BTreeMap::new();
        for (url, word) in [
            ("127.0.0.1:4318", "http://HOST:PORT"),
            ("http://", "host's name"),
            ("grpc://collector:4317", "http://HOST:PORT"),
            ("https://", "host's name"),
            ("http://user:secret@collector", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://user:sec/secret@collector", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://collector/v1?token=secret", "without spaces"),
            ("user:secret@collector:4318/x", "http://HOST:PORT"),
            ("http://collector/a b", "without spaces"),
        ] {
            let error = Endpoint::new(url, &none).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
    }
}
