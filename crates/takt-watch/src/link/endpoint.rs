//! Name of a link on the command line.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use takt_rt::config::SettingError;

use crate::error::WatchError;

/// The followed link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `udp:PORT`.
    Udp {
        /// The watched program's own port.
        port: u16,
    },
    /// `tcp:HOST:PORT`.
    Tcp {
        /// The robot's address.
        host: IpAddr,
        /// The robot's port.
        port: u16,
    },
    /// `INTERFACE:ethercat`.
    Ethercat {
        /// The master's interface.
        interface: InterfaceName,
    },
}

/// The name of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceName {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl InterfaceName {
    /// IFNAMSIZ without the zero at its end.
    const MOST: usize = 15;

    /// None where no interface can have this name.
    pub fn new(name: &str) -> Option<Self> {
        let good =
            !name.is_empty() && !name.contains(['/', ':', '\0']) && !name.contains(char::is_whitespace);
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..name.len()).filter(|_| good)?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, length: name.len() })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        // It was made of text.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Endpoint {
    /// Up to four links, as the settings keep them.
    ///
    /// # Errors
    /// [`WatchError::Links`] where there are more.
    pub fn all(endpoints: &[Self]) -> Result<[Option<Self>; 4], WatchError> {
        let mut links = [None; 4];
        if endpoints.len() > links.len() {
            return Err(WatchError::Links { given: endpoints.len(), most: links.len() });
        }
        for (place, &link) in links.iter_mut().zip(endpoints) {
            *place = Some(link);
        }
        Ok(links)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Udp { port } => write!(f, "udp:{port}"),
            Self::Tcp { host: IpAddr::V6(host), port } => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Self::Ethercat { interface } => write!(f, "{}:ethercat", interface.as_str()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        const ACCEPTED: &str = "accepted are udp:PORT (the program's own port), tcp:HOST:PORT (the robot's address, such as 192.0.2.1 or \
             [2001:db8::1], and port) and INTERFACE:ethercat (the master's interface)";
        let refused = || SettingError::value("--link", text.to_owned(), ACCEPTED);
        let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(refused);
        if let Some(rest) = text.strip_prefix("udp:") {
            return Ok(Self::Udp { port: port(rest)? });
        }
        if let Some(rest) = text.strip_prefix("tcp:") {
            let (host, number) = rest.rsplit_once(':').ok_or_else(refused)?;
            let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = match in_brackets {
                Some(host) => host.parse::<Ipv6Addr>().map(IpAddr::from).ok(),
                None => host.parse::<std::net::Ipv4Addr>().map(IpAddr::from).ok(),
            };
            let host = host.ok_or_else(refused)?;
            return Ok(Self::Tcp { host, port: port(number)? });
        }
        let name = text.strip_suffix(":ethercat").and_then(InterfaceName::new);
        name.map(|interface| Self::Ethercat { interface }).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_as_they_are_given() {
        for text in [
            "udp:50002",
            "tcp:192.0.2.1:30004",
            "tcp:[2001:db8::1]:30004",
            "eth0:ethercat",
            "enp0s31f6.1234:ethercat",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for (text, word) in [
            ("udp:0", "udp:PORT"),
            ("udp:", "udp:PORT"),
            ("tcp:30004", "tcp:HOST:PORT"),
            ("tcp:robot:30004", "192.0.2.1"),
            ("tcp:2001:db8::1:30004", "[2001:db8::1]"),
            ("tcp:[192.0.2.1]:30004", "192.0.2.1"),
            (":ethercat", "INTERFACE"),
            ("an-interface-too-long:ethercat", "INTERFACE"),
            ("x", "--link"),
        ] {
            let message = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
