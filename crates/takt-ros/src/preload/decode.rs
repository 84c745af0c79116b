//! Records of the shared rings, from words to events. Every word is another process's, and judged
//! before it is used.

use std::sync::Arc;

use thiserror::Error;

use super::ring::{FLAG_CPU, FLAG_CUT, FLAG_SET, MAX_RECORD, MAX_TEXT, UNKNOWN, code, head_word};
use crate::event::{Kind, MemberKind, ServiceStep};

/// Reason why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A first word that no writer has written there.
    #[error("at word {position}: {found:#018x} does not begin a record")]
    NotARecord { position: u64, found: u64 },
    /// A record longer than what was written, or than any record may be.
    #[error("at word {position}: a record of {words} words; at most {most} are possible")]
    Length { position: u64, words: usize, most: usize },
    /// A record whose arguments are not those of its code.
    #[error("at word {position}: the arguments of code {code} do not fit into {words} words")]
    Arguments { position: u64, code: u8, words: usize },
    /// A code that this version does not know.
    #[error("at word {position}: code {code} is unknown")]
    Code { position: u64, code: u8 },
}

/// Content of a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The ring belongs to this thread from here on.
    Thread {
        /// Its number, as its process sees it.
        tid: u32,
        name: Arc<str>,
    },
    /// `rcl_init`: of no use but that the process speaks ROS.
    Init,
    Event(Kind),
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// CPU time of the thread.
    pub cpu_ns: Option<u64>,
    /// A text was cut.
    pub cut: bool,
    /// The rest.
    pub content: Content,
}

/// A record's first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Length in words.
    pub words: usize,
    pub code: u8,
    pub flags: u8,
}

/// Reads the first word of the record at `position`, after which `left` words were written in all,
/// and which must end before the ring does, `lap` words from there.
pub fn head(word: u64, position: u64, left: u64, lap: usize) -> Result<Head, RecordError> {
    let head = Head { words: (word & 0xffff) as usize, code: (word >> 16) as u8, flags: (word >> 24) as u8 };
    let least = if head.code == code::PADDING { 1 } else { 2 };
    if word != head_word(head.words, head.code, head.flags, position) || head.words < least {
        return Err(RecordError::NotARecord { position, found: word });
    }
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_RECORD).min(lap);
    if head.words > most {
        return Err(RecordError::Length { position, words: head.words, most });
    }
    Ok(head)
}

/// Reads the words of a record after its first.
pub fn decode(head: Head, words: &[u64], position: u64) -> Result<Decoded, RecordError> {
    Arguments { words, head, position }.decode()
}

struct Arguments<'a> {
    words: &'a [u64],
    head: Head,
    position: u64,
}

impl Arguments<'_> {
    fn bad(&self) -> RecordError {
        RecordError::Arguments { position: self.position, code: self.head.code, words: self.head.words }
    }

    fn word(&mut self) -> Result<u64, RecordError> {
        let (first, rest) = self.words.split_first().ok_or_else(|| self.bad())?;
        self.words = rest;
        Ok(*first)
    }

    fn signed(&mut self) -> Result<i64, RecordError> {
        self.word().map(u64::cast_signed)
    }

    fn text(&mut self) -> Result<Arc<str>, RecordError> {
        let length = usize::try_from(self.word()?).unwrap_or(usize::MAX);
        if length > MAX_TEXT {
            return Err(self.bad());
        }
        let (text, rest) = self.words.split_at_checked(length.div_ceil(8)).ok_or_else(|| self.bad())?;
        self.words = rest;
        let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
        Ok(String::from_utf8_lossy(&bytes).into())
    }

    fn is_set(&self) -> bool {
        self.head.flags & FLAG_SET != 0
    }

    fn decode(mut self) -> Result<Decoded, RecordError> {
        let at_ns = self.word()?;
        let cpu_ns = match self.head.flags & FLAG_CPU != 0 {
            true => Some(self.word()?),
            false => None,
        };
        let content = self.content()?;
        if !self.words.is_empty() {
            return Err(self.bad());
        }
        Ok(Decoded { at_ns, cpu_ns, cut: self.head.flags & FLAG_CUT != 0, content })
    }

    fn content(&mut self) -> Result<Content, RecordError> {
        let kind = match self.head.code {
            code::THREAD => {
                let tid = u32::try_from(self.word()?).map_err(|_| self.bad())?;
                return Ok(Content::Thread { tid, name: self.text()? });
            }
            code::INIT => {
                self.word()?;
                return Ok(Content::Init);
            }
            code::THREAD_END => Kind::ThreadEnd,
            code::JOB => {
                let (released_ns, started_ns, used_ns) = (self.word()?, self.word()?, self.word()?);
                Kind::Job { released_ns, started_ns, used_ns, task: self.text()? }
            }
            code::LOST => Kind::Lost { count: self.word()? },
            code::NODE => Kind::NodeInit { node: self.word()?, name: self.text()?, namespace: self.text()? },
            code::PUBLISHER => {
                let (publisher, node, rmw_publisher, depth) =
                    (self.word()?, self.word()?, self.word()?, self.word()?);
                Kind::PublisherInit { publisher, node, rmw_publisher, topic: self.text()?, depth }
            }
            code::SUBSCRIPTION => {
                let (subscription, node, rmw_subscription, depth) =
                    (self.word()?, self.word()?, self.word()?, self.word()?);
                Kind::SubscriptionInit { subscription, node, rmw_subscription, topic: self.text()?, depth }
            }
            code::SUBSCRIPTION_OBJECT => {
                Kind::SubscriptionObject { subscription: self.word()?, object: self.word()? }
            }
            code::SUBSCRIPTION_CALLBACK => {
                Kind::SubscriptionCallback { object: self.word()?, callback: self.word()? }
            }
            code::SERVICE => {
                let (service, node, rmw_service) = (self.word()?, self.word()?, self.word()?);
                Kind::ServiceInit { service, node, rmw_service, name: self.text()? }
            }
            code::SERVICE_CALLBACK => Kind::ServiceCallback { service: self.word()?, callback: self.word()? },
            code::CLIENT => {
                let (client, node, rmw_client) = (self.word()?, self.word()?, self.word()?);
                Kind::ClientInit { client, node, rmw_client, name: self.text()? }
            }
            code::TIMER => Kind::TimerInit { timer: self.word()?, period_ns: self.signed()? },
            code::TIMER_CALLBACK => Kind::TimerCallback { timer: self.word()?, callback: self.word()? },
            code::TIMER_NODE => Kind::TimerNode { timer: self.word()?, node: self.word()? },
            code::SYMBOL => Kind::CallbackSymbol { callback: self.word()?, symbol: self.text()? },
            code::CALLBACK_START => {
                Kind::CallbackStart { callback: self.word()?, intra_process: self.is_set() }
            }
            code::CALLBACK_END => Kind::CallbackEnd { callback: self.word()? },
            code::OFF_CPU => {
                let mut known = || self.word().map(|word| (word != UNKNOWN).then_some(word));
                let (switches, ready_ns, yields) = (known()?, known()?, known()?);
                Kind::OffCpu { switches, ready_ns, yields, early_ns: self.word()? }
            }
            code::RCLCPP_PUBLISH => Kind::RclcppPublish { message: self.word()? },
            code::RCL_PUBLISH => Kind::RclPublish { publisher: self.word()?, message: self.word()? },
            code::RMW_PUBLISH => Kind::RmwPublish {
                rmw_publisher: self.word()?,
                message: self.word()?,
                source_ns: Some(self.signed()?),
            },
            code::RMW_PUBLISH_OLD => {
                Kind::RmwPublish { rmw_publisher: 0, message: self.word()?, source_ns: None }
            }
            code::INTRA_PUBLISH => Kind::IntraPublish { publisher: self.word()?, message: self.word()? },
            code::RMW_TAKE => Kind::RmwTake {
                rmw_subscription: self.word()?,
                message: self.word()?,
                source_ns: self.signed()?,
                taken: self.is_set(),
            },
            code::SEND_REQUEST => self.service(ServiceStep::SendRequest)?,
            code::TAKE_REQUEST => self.service(ServiceStep::TakeRequest)?,
            code::SEND_RESPONSE => self.service(ServiceStep::SendResponse)?,
            code::TAKE_RESPONSE => self.service(ServiceStep::TakeResponse)?,
            code::WAIT => Kind::ExecutorWait { timeout_ns: self.signed()? },
            code::NEXT_READY => Kind::ExecutorNextReady,
            code::EXECUTE => Kind::ExecutorExecute { handle: self.word()? },
            code::BUFFER_OF_SUBSCRIPTION => {
                Kind::IntraProcessBuffer { buffer: self.word()?, of: self.word()?, to_subscription: true }
            }
            code::BUFFER_INSIDE => {
                let (of, buffer) = (self.word()?, self.word()?);
                Kind::IntraProcessBuffer { buffer, of, to_subscription: false }
            }
            code::TRANSITION => {
                Kind::LifecycleTransition { machine: self.word()?, from: self.text()?, to: self.text()? }
            }
            code::SPIN => Kind::ExecutorSpin { executor: self.word()?, kind: self.text()? },
            code::EXECUTED => Kind::ExecutorExecuted { complete: self.is_set() },
            code::RECEIVED => Kind::MessageReceived { after_ns: self.signed()? },
            code::HEAD => Kind::MessageHead { head: self.word()? },
            code::PYTHON => Kind::Python,
            code::GROUP_MEMBER => {
                let group = self.word()?;
                let member = match self.word()? {
                    0 => MemberKind::Timer,
                    1 => MemberKind::Subscription,
                    2 => MemberKind::Service,
                    3 => MemberKind::Client,
                    _ => return Err(self.bad()),
                };
                Kind::GroupMember { group, reentrant: self.is_set(), member, object: self.word()? }
            }
            code => return Err(RecordError::Code { position: self.position, code }),
        };
        Ok(Content::Event(kind))
    }

    fn service(&mut self, step: ServiceStep) -> Result<Kind, RecordError> {
        Ok(Kind::Service { step, rmw_handle: self.word()?, sequence: self.signed()?, client: self.word()? })
    }
}
