//! Asks which programs are at the tc hook of an interface. Linux answers only a thread with `CAP_NET_ADMIN`, which
//! would also allow changes of interfaces, routes and firewall rules. So only one thread keeps this capability. It only
//! asks, and the sandbox allows it no other system calls.

use std::io;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::syscall::{self, Chained, Hook};

/// How to ask the kernel: by default in the calling thread.
#[derive(Debug, Default)]
pub struct Chains(Option<ByThread>);

/// The other end is an [`Asker`].
#[derive(Debug)]
struct ByThread {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
}

/// The index of an interface, and one of its hooks.
type Question = (u32, Hook);
type Answer = io::Result<Vec<Chained>>;

/// Asks the kernel for other threads.
#[derive(Debug)]
pub struct Asker {
    questions: Receiver<Question>,
    answers: Sender<Answer>,
}

impl Chains {
    /// Creates a `Chains` that asks through another thread. That thread has to [run](Asker::run) the asker.
    pub fn by_thread() -> (Self, Asker) {
        let (questions, asked) = bounded(1);
        let (answered, answers) = bounded(1);
        (Self(Some(ByThread { questions, answers })), Asker { questions: asked, answers: answered })
    }

    /// The programs at a hook of an interface, in the order in which they run.
    ///
    /// # Errors
    ///
    /// Those of [`syscall::chain`], or that the other thread has ended.
    pub fn of(&self, ifindex: u32, hook: Hook) -> Answer {
        let Some(ByThread { questions, answers }) = &self.0 else { return syscall::chain(ifindex, hook) };
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        questions.send((ifindex, hook)).map_err(|_| ended())?;
        answers.recv().unwrap_or_else(|_| Err(ended()))
    }
}

impl Asker {
    /// Answers until every `Chains` is dropped.
    pub fn run(self) {
        for (ifindex, hook) in &self.questions {
            if self.answers.send(syscall::chain(ifindex, hook)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_thread_gives_the_same_answers() {
        const NO_INTERFACE: u32 = u32::MAX >> 1;
        let (chains, asker) = Chains::by_thread();
        std::thread::scope(|scope| {
            scope.spawn(|| asker.run());
            let number = |answer: Answer| answer.unwrap_err().raw_os_error();
            let own = number(Chains::default().of(NO_INTERFACE, Hook::TcxIngress));
            assert!(own.is_some());
            assert_eq!(number(chains.of(NO_INTERFACE, Hook::TcxIngress)), own);
            assert_eq!(number(chains.of(NO_INTERFACE, Hook::TcxEgress)), own);
            drop(chains);
        });
    }

    #[test]
    fn without_the_thread_there_is_an_error() {
        let (chains, asker) = Chains::by_thread();
        drop(asker);
        assert_eq!(chains.of(1, Hook::TcxIngress).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
