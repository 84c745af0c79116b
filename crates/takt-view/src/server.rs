//! The web view: one thread with an event loop that owns all readers and all connections.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use takt_link_camera::Frame;
use takt_perception::{Detections, Overlay};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::Reader;
use takt_rt::thread::Handle;

use crate::api::StatusReply;
use crate::error::Error;
use crate::http::{Answer, Body, Connection, Fate, Request};
use crate::picture::{PictureMaker, PictureSettings};
use crate::status::{CellStatus, MAX_CAMERAS};
use crate::urgency::{self, Urgency};

/// Most connections at once; when one more comes, the one nearest to its time limit is closed.
const CONNECTIONS: usize = 32;

/// How the web view behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewConfig {
    /// Address to listen on; it must be a loopback address. Port 0 takes any free port.
    pub bind: SocketAddr,
    /// Most pictures a second for each camera, 0.1 to 60. More cost CPU and show nothing more.
    pub max_fps: f64,
    /// JPEG quality, 1 to 100.
    pub jpeg_quality: u8,
    /// Pictures are shrunk by this whole factor, 1 to 16, as the mean over as many pixels. Boxes keep the frame's pixels.
    pub shrink: u32,
    /// How the thread is scheduled.
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

/// What the view reads of one camera.
pub struct CameraSource {
    /// Name, as the configuration has it.
    pub name: String,
    /// Frames.
    pub frames: Reader<Frame>,
    /// What perception found.
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

/// A running web view. Dropping it stops it.
pub struct ViewServer {
    address: SocketAddr,
    /// Closing this end ends the event loop.
    stop: Option<UnixStream>,
    thread: Option<Handle>,
}

impl ViewServer {
    /// Listens and starts the thread `view-http`. `title` heads the page.
    ///
    /// # Errors
    /// A setting out of range or an address that is not loopback; an address that cannot be listened on; a
    /// thread that cannot be made or cannot be given its urgency. The cell can run without its view.
    pub fn start(config: ViewConfig, sources: ViewSources, title: &str) -> Result<Self, Error> {
        config.check()?;
        if sources.cameras.len() > MAX_CAMERAS {
            return Err(Error::Setting {
                setting: "cameras",
                accepted: "at most 8",
                received: sources.cameras.len().to_string(),
            });
        }
        let listen = |source| Error::Listen { address: config.bind, source };
        let listener = TcpListener::bind(config.bind).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::Channel)?;

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
        let server = EventLoop {
            listener,
            stopped,
            hosts: hosts(address),
            content,
            connections: Vec::new(),
            accept_after_ns: 0,
        };
        let thread = urgency::spawn("view-http", config.urgency, move || server.run())?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The address listened on, with the port that was found free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and ends the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A view that died must not take the cell with it.
            let _ = thread.join();
        }
    }
}

impl Drop for ViewServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The values of `Host` that are served.
fn hosts(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let mut hosts = vec![address.to_string(), format!("localhost:{port}")];
    if port == 80 {
        hosts.extend([address.ip().to_string(), "localhost".to_owned()]);
    }
    hosts
}

/// What is served, with the readers it comes from.
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

    fn answer(&mut self, request: &Request<'_>, now_ns: u64) -> Answer {
        let fixed = |content_type, text: &'static str| Answer {
            code: 200,
            content_type,
            extra: String::new(),
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
                Answer::text(403, "only the view's own page may ask for this")
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
            body: if same { Body::Fixed(&[]) } else { Body::Shared(picture.jpeg.clone()) },
        }
    }
}

struct EventLoop {
    listener: TcpListener,
    stopped: UnixStream,
    hosts: Vec<String>,
    content: Content,
    connections: Vec<Connection>,
    /// No connection is accepted before this time.
    accept_after_ns: u64,
}

impl EventLoop {
    fn run(mut self) {
        loop {
            let now_ns = monotonic_ns();
            let timeout = self.due_ns(now_ns).map(|due| {
                let wait = due.saturating_sub(now_ns);
                Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as _ }
            });
            let accept = if now_ns < self.accept_after_ns { PollFlags::empty() } else { PollFlags::IN };
            let mut watched = vec![
                PollFd::from_borrowed_fd(self.stopped.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), accept),
            ];
            watched.extend(self.connections.iter().map(|connection| {
                let events = if connection.wants_to_write() { PollFlags::OUT } else { PollFlags::IN };
                PollFd::from_borrowed_fd(connection.stream().as_fd(), events)
            }));
            if let Err(error) = poll(&mut watched, timeout.as_ref())
                && error != rustix::io::Errno::INTR
            {
                return; // No descriptor can be waited for: nothing can be served any more.
            }
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            self.turn(ready[1], &ready[2..]);
        }
    }

    /// When something is due besides what descriptors tell.
    fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let pictures = self.content.cameras.iter().filter_map(|camera| camera.due_ns(now_ns));
        let accept = (self.accept_after_ns > now_ns).then_some(self.accept_after_ns);
        self.connections.iter().map(Connection::deadline_ns).chain(pictures).chain(accept).min()
    }

    fn turn(&mut self, incoming: bool, ready: &[bool]) {
        let now_ns = monotonic_ns();
        let Self { hosts, content, connections, listener, .. } = self;
        content.refresh();
        for camera in &mut content.cameras {
            camera.advance(now_ns, &content.newest);
        }
        let mut ready = ready.iter().copied();
        connections.retain_mut(|connection| {
            let alive = !ready.next().unwrap_or(false)
                || connection.advance(now_ns, hosts, &mut |request| content.answer(request, now_ns))
                    == Fate::Open;
            alive && now_ns < connection.deadline_ns()
        });
        // One a turn, so that a flood of connections cannot starve those that are served.
        if !incoming {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if connections.len() >= CONNECTIONS {
                    let next_to_end = (0..connections.len()).min_by_key(|&i| connections[i].deadline_ns());
                    connections.swap_remove(next_to_end.unwrap_or(0));
                }
                connections.extend(Connection::new(stream, now_ns));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Out of descriptors, say: the listener stays ready, and trying at once again would spin.
            Err(_) => self.accept_after_ns = now_ns + 1_000_000_000,
        }
    }
}
