//! Requests under way: one future of the master per lane, held from the cycle that sends to the one that fetches.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ethercrab::error::Error;
use ethercrab::{Command, EtherCrabWireWrite, MainDevice};

use super::master::MOST_DATA;

/// AL status of a device, and its status code at 0x0134.
const AL_STATUS: u16 = 0x0130;

/// Data to be sent, by value: a future that borrowed them could not be held across cycles.
#[derive(Clone, Copy)]
pub(super) struct Payload {
    pub length: usize,
    pub bytes: [u8; MOST_DATA],
}

impl EtherCrabWireWrite for Payload {
    fn pack_to_slice_unchecked<'buf>(&self, buffer: &'buf mut [u8]) -> &'buf [u8] {
        let length = self.packed_len();
        buffer[..length].copy_from_slice(&self.bytes[..length]);
        &buffer[..length]
    }

    fn packed_len(&self) -> usize {
        self.length.min(MOST_DATA)
    }
}

/// What a lane sends.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation per cycle")]
pub(super) enum Request {
    /// A piece of the process image at a logical address: outputs there, inputs back.
    Process { address: u32, payload: Payload },
    /// The AL status of all devices at once.
    Status,
    /// The AL status of one device, with its code.
    Device { address: u16 },
}

/// What came back.
pub(super) struct Answer {
    pub length: usize,
    pub bytes: [u8; MOST_DATA],
}

async fn request(device: &'static MainDevice<'static>, what: Request) -> Result<Answer, Error> {
    // The working counter is read from the frame (see `master::first_datagram`): the master's own check would
    // withhold the data of the devices that did take part.
    let data = match what {
        Request::Process { address, payload } => {
            Command::lrw(address).ignore_wkc().send_receive_slice(device, payload).await?
        }
        Request::Status => Command::brd(AL_STATUS).ignore_wkc().receive_slice(device, 2).await?,
        Request::Device { address } => {
            Command::fprd(address, AL_STATUS).ignore_wkc().receive_slice(device, 6).await?
        }
    };
    let mut answer = Answer { length: data.len().min(MOST_DATA), bytes: [0; MOST_DATA] };
    answer.bytes[..answer.length].copy_from_slice(&data[..answer.length]);
    Ok(answer)
}

/// Lanes of one type of future, without its name.
pub(super) trait Lanes: Send {
    /// Queues a request; one under way in that lane is given up.
    fn start(&mut self, lane: usize, what: Request);
    /// Whether a request is under way.
    fn busy(&self, lane: usize) -> bool;
    /// Looks whether the answer is there; it is taken then. `None` while it is not, or the lane is idle.
    fn fetch(&mut self, lane: usize) -> Option<Result<Answer, Error>>;
    /// Gives a request up.
    fn give_up(&mut self, lane: usize);
}

struct Held<F, M> {
    lanes: Vec<Pin<Box<Option<F>>>>,
    make: M,
}

impl<F, M> Lanes for Held<F, M>
where
    F: Future<Output = Result<Answer, Error>> + Send,
    M: Fn(Request) -> F + Send,
{
    fn start(&mut self, lane: usize, what: Request) {
        let held = &mut self.lanes[lane];
        held.set(None);
        held.set(Some((self.make)(what)));
        // The first poll queues the frame; it cannot be answered yet.
        let mut context = Context::from_waker(Waker::noop());
        if let Some(future) = held.as_mut().as_pin_mut()
            && future.poll(&mut context).is_ready()
        {
            // Refused, as when all frames are in use: counts as lost when it is fetched.
            held.set(None);
        }
    }

    fn busy(&self, lane: usize) -> bool {
        self.lanes[lane].is_some()
    }

    fn fetch(&mut self, lane: usize) -> Option<Result<Answer, Error>> {
        let held = &mut self.lanes[lane];
        let mut context = Context::from_waker(Waker::noop());
        match held.as_mut().as_pin_mut()?.poll(&mut context) {
            Poll::Ready(answer) => {
                held.set(None);
                Some(answer)
            }
            Poll::Pending => None,
        }
    }

    fn give_up(&mut self, lane: usize) {
        self.lanes[lane].set(None);
    }
}

/// Makes `count` lanes. All memory is taken here.
pub(super) fn lanes(device: &'static MainDevice<'static>, count: usize) -> Box<dyn Lanes> {
    let make = move |what| request(device, what);
    Box::new(Held { lanes: (0..count).map(|_| Box::pin(None)).collect(), make })
}
