//! The web view: the page and what it asks for, from the readers that it owns.

#![deny(missing_docs)]

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use takt_link_camera::Frame;
use takt_perception::{Detections, Overlay};
use takt_rt::exchange::Reader;
use takt_view::{Answer, Body, Error, Pages, Request, Server, Urgency};

use super::api::StatusReply;
use super::picture::{PictureMaker, PictureSettings};
use super::status::CellStatus;
use crate::ssm::MAX_CAMERAS;

/// Options of the web view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewConfig {
    /// Address to listen on; it must be a loopback address. Port 0 takes any free port.
    pub bind: SocketAddr,
    /// Most pictures a second for each camera, 0.1 to 60. More cost CPU and show nothing more.
    pub max_fps: f64,
    /// JPEG quality, 1 to 100.
    pub jpeg_quality: u8,
    /// Pictures are shrunk by this whole factor, 1 to 16, as the mean over as many pixels. Boxes
    /// keep the frame's pixels.
    pub shrink: u32,
    /// Scheduling of the thread.
    pub urgency: Urgency,
}

impl Default for ViewConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            max_fps: 8.0,
            jpeg_quality: 78,
            shrink: 1,
            urgency: Urgency::Low,
        }
    }
}

impl ViewConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`Error::NotLoopback`] and [`Error::Setting`], which name what is accepted.
    pub fn check(&self) -> Result<(), Error> {
        if !self.bind.ip().is_loopback() {
            return Err(Error::NotLoopback { received: self.bind });
        }
        let refuse =
            |setting, accepted, received: String| Err(Error::Setting { setting, accepted, received });
        if !(0.1..=60.0).contains(&self.max_fps) {
            return refuse("max_fps", "0.1 to 60", self.max_fps.to_string());
        }
        if !(1..=100).contains(&self.jpeg_quality) {
            return refuse("jpeg_quality", "1 to 100", self.jpeg_quality.to_string());
        }
        if !(1..=16).contains(&self.shrink) {
            return refuse("shrink", "1 to 16", self.shrink.to_string());
        }
        Ok(())
    }
}

/// The view's input from one camera.
pub struct CameraSource {
    /// Name, as the configuration has it.
    pub name: String,
    /// Frames.
    pub frames: Reader<Frame>,
    /// Results of perception.
    pub detections: Reader<Detections>,
    /// Segmentation masks, where perception offers them for display.
    pub masks: Option<Reader<Overlay>>,
}

/// Everything the web view reads.
pub struct ViewSources {
    /// The cameras, in the order of the configuration; at most [`MAX_CAMERAS`].
    pub cameras: Vec<CameraSource>,
    /// The state of the cell. Its stamp says how old it is.
    pub status: Reader<CellStatus>,
}

/// A running web view. Dropping it closes all connections and ends its thread.
#[derive(Debug)]
pub struct ViewServer(Server);

impl ViewServer {
    /// Listens and starts the thread `view-http`. `title` heads the page.
    ///
    /// # Errors
    /// A setting out of range or an address that is not loopback; an address that cannot be
    /// listened on; a thread that cannot be made or cannot be given its urgency. The cell can run
    /// without its view.
    pub fn start(config: ViewConfig, sources: ViewSources, title: &str) -> Result<Self, Error> {
        config.check()?;
        if sources.cameras.len() > MAX_CAMERAS {
            return Err(Error::Setting {
                setting: "cameras",
                accepted: "at most 8",
                received: sources.cameras.len().to_string(),
            });
        }
        let settings = PictureSettings {
            period_ns: (1e9 / config.max_fps) as u64,
            jpeg_quality: config.jpeg_quality,
            shrink: config.shrink,
        };
        let content = Content {
            title: title.to_owned(),
            names: sources.cameras.iter().map(|camera| camera.name.clone()).collect(),
            cameras: sources.cameras.into_iter().map(|camera| PictureMaker::new(camera, settings)).collect(),
            status: sources.status,
            newest: Box::default(),
            sequence: 0,
            stamp_ns: 0,
        };
        Server::start("view-http", config.bind, config.urgency, content).map(Self)
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The address listened on, with the port that was found free.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Served content, with its readers.
struct Content {
    title: String,
    names: Vec<String>,
    cameras: Vec<PictureMaker>,
    status: Reader<CellStatus>,
    newest: Box<CellStatus>,
    sequence: u64,
    stamp_ns: u64,
}

impl Content {
    fn refresh(&mut self) {
        if self.status.sequence() != self.sequence {
            let snapshot = self.status.read();
            (self.sequence, self.stamp_ns) = (snapshot.sequence, snapshot.stamp_ns);
            *self.newest = *snapshot.value;
        }
    }
}

impl Pages for Content {
    fn due_ns(&self, now_ns: u64) -> Option<u64> {
        self.cameras.iter().filter_map(|camera| camera.due_ns(now_ns)).min()
    }

    fn turn(&mut self, now_ns: u64) {
        self.refresh();
        for camera in &mut self.cameras {
            camera.advance(now_ns, &self.newest);
        }
    }

    fn answer(&mut self, request: &Request<'_>, now_ns: u64) -> Answer {
        let fixed = |content_type, text: &'static str| Answer {
            code: 200,
            content_type,
            extra: String::new(),
            inline_style: false,
            body: Body::Fixed(text.as_bytes()),
        };
        match request.path {
            "/" => fixed("text/html; charset=utf-8", include_str!("page/index.html")),
            "/view.css" => fixed("text/css; charset=utf-8", include_str!("page/view.css")),
            "/view.js" => fixed("text/javascript; charset=utf-8", include_str!("page/view.js")),
            "/icon.svg" => fixed("image/svg+xml", include_str!("page/icon.svg")),
            path if !path.starts_with("/api/") => Answer::text(404, "no such page"),
            // Browsers say where a request comes from; what other sites ask for is not answered.
            _ if request.fetch_site.is_some_and(|site| !matches!(site, "same-origin" | "none")) => {
                Answer::text(403, "only the view's own page may request this")
            }
            "/api/status" => self.status_answer(now_ns),
            path => match path.strip_prefix("/api/camera/").and_then(|number| number.parse::<usize>().ok()) {
                Some(number) if number < self.cameras.len() => {
                    let have = request.query.strip_prefix("have=").and_then(|frame| frame.parse().ok());
                    self.picture_answer(number, have, now_ns)
                }
                _ => Answer::text(404, format!("there are {} cameras, counted from 0", self.cameras.len())),
            },
        }
    }
}

impl Content {
    fn status_answer(&mut self, now_ns: u64) -> Answer {
        self.refresh();
        let age_ns = now_ns.saturating_sub(self.stamp_ns);
        let pictures = self.cameras.iter().map(PictureMaker::encoded);
        let cameras = self.names.iter().map(String::as_str).zip(pictures);
        let reply = StatusReply::new(&self.title, cameras, &self.newest, self.sequence, age_ns);
        match serde_json::to_vec(&reply) {
            Ok(json) => Answer {
                code: 200,
                content_type: "application/json",
                extra: String::new(),
                inline_style: false,
                body: Body::Owned(json),
            },
            Err(error) => Answer::text(503, error),
        }
    }

    /// The newest picture, or 204 when the client has it already (`have` is its frame number).
    fn picture_answer(&mut self, camera: usize, have: Option<u64>, now_ns: u64) -> Answer {
        self.refresh();
        let picture = match self.cameras[camera].ask(now_ns, &self.newest) {
            Ok(picture) => picture,
            Err(error) => return Answer::text(503, error),
        };
        let mut note = picture.note.clone();
        note.age_ms = now_ns.saturating_sub(picture.capture_ns) / 1_000_000;
        let note = match serde_json::to_string(&note) {
            Ok(note) => note,
            Err(error) => return Answer::text(503, error),
        };
        let same = have == Some(picture.note.frame);
        Answer {
            code: if same { 204 } else { 200 },
            content_type: "image/jpeg",
            extra: format!("X-Takt-Picture: {note}\r\n"),
            inline_style: false,
            body: if same { Body::Fixed(&[]) } else { Body::Shared(picture.jpeg.clone()) },
        }
    }
}
