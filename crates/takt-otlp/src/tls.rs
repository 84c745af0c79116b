//! TLS, where this program was built with it: authorities that the system knows (SSL_CERT_FILE and
//! SSL_CERT_DIR, as OpenSSL reads them) or those of one file alone.

use std::io::{Read, Write};
#[cfg(feature = "tls")]
use std::path::Path;

/// The variable of OpenTelemetry that names a file with authorities.
pub(crate) const AUTHORITIES: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// Identity of the other side.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    config: Option<std::sync::Arc<rustls::ClientConfig>>,
}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) fn new(_authorities: Option<&str>) -> Result<Self, String> {
        Err("this takt was built without TLS (cargo build --release --features tls): pass the address of a collector on this machine that \
             forwards the metrics"
            .to_owned())
    }

    pub(crate) fn over<S: Read + Write, T>(
        &self,
        _authority: &str,
        _plain: S,
        _work: impl FnOnce(&mut S) -> Result<T, String>,
    ) -> Result<T, String> {
        Err("this takt was built without TLS".to_owned())
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// From the authorities in a file in PEM, or those that the system knows.
    pub(crate) fn new(authorities: Option<&str>) -> Result<Self, String> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        use takt_files::AUTHORITIES_BYTES;

        let mut roots = rustls::RootCertStore::empty();
        match authorities {
            Some(file) => {
                let wrong = |why: String| format!("{AUTHORITIES}={file}: {why}");
                let bytes = takt_files::read(Path::new(file), AUTHORITIES_BYTES);
                let bytes = bytes.map_err(|error| wrong(error.to_string()))?;
                for certificate in CertificateDer::pem_slice_iter(&bytes) {
                    let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                    roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(wrong("it contains no certificate in PEM format".to_owned()));
                }
            }
            // Without any, no server is known: the sentence then says how to name one.
            None => {
                const ALL: &str = "SSL_CERT_FILE";
                let file = std::env::var_os(ALL).unwrap_or_default();
                takt_files::environment::check_file(ALL, Path::new(&file), AUTHORITIES_BYTES)
                    .map_err(|error| error.to_string())?;
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Some(std::sync::Arc::new(config)) })
    }

    /// Does `work` over TLS on a connection.
    pub(crate) fn over<S: Read + Write, T>(
        &self,
        authority: &str,
        mut plain: S,
        work: impl FnOnce(&mut rustls::Stream<'_, rustls::ClientConnection, S>) -> Result<T, String>,
    ) -> Result<T, String> {
        let Some(config) = &self.config else { return Err("TLS was not prepared".to_owned()) };
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = rustls::pki_types::ServerName::try_from(host.clone());
        let name = name.map_err(|_| format!("{host} cannot be the name in a certificate"))?;
        let connection = rustls::ClientConnection::new(std::sync::Arc::clone(config), name);
        let mut connection = connection.map_err(|error| error.to_string())?;
        // First and alone, for what is wrong is said of it and not of the request.
        while connection.is_handshaking() {
            connection.complete_io(&mut plain).map_err(|error| in_words(&error))?;
        }
        work(&mut rustls::Stream::new(&mut connection, &mut plain))
    }
}

/// Describes why there is no TLS with the other side.
#[cfg(feature = "tls")]
fn in_words(error: &std::io::Error) -> String {
    use rustls::{CertificateError, Error, InvalidMessage};

    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
            "the authority that signed its certificate is unknown here: set {AUTHORITIES} to a PEM file that contains it"
        ),
        // One of its verifier's reasons that have no variant.
        Some(error @ Error::InvalidCertificate(CertificateError::Other(_)))
            if error.to_string().contains("CaUsedAsEndEntity") =>
        {
            "it presents an authority's certificate: it needs one that an authority signed, with basicConstraints=CA:FALSE"
                .to_owned()
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "it does not use TLS there: use http://".to_owned()
        }
        _ => format!("TLS: {error}"),
    }
}
