"""Loops, callbacks and settings, against what another reader finds in the shared memory and in /proc."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from datetime import timedelta

import takt
from session import Session

MS = 1_000_000


class Loops(unittest.TestCase):
    def test_releases_lie_on_one_grid_and_records_are_what_the_body_saw(self):
        own = []
        with takt.loop("grid", hz=200, deadline="4 ms") as loop:
            session = Session()
            session.attach("grid")
            for release in loop:
                loop.input(7 + release.job)
                loop.stage("sense")
                loop.stage("act")
                loop.value(release.job / 4)
                own.append((release, time.monotonic_ns()))
                if len(own) == 20:
                    break
            loop.end()
            slot = session.names()["grid"]
            records = session.take("grid")
        self.assertEqual((slot.state, slot.kind, slot.period_ns, slot.deadline_ns), (1, 1, 5 * MS, 4 * MS))
        self.assertEqual(slot.tid, threading.get_native_id())
        self.assertEqual(slot.stages, ["sense", "act"])
        first = own[0][0].release_ns
        for release, _ in own:
            self.assertEqual((release.release_ns - first) % (5 * MS), 0)
            self.assertGreaterEqual(release.begin_ns, release.release_ns)
        jobs = [record for record in records if record.kind == 1]
        self.assertEqual(len(jobs), 20)
        self.assertEqual(len([record for record in records if record.kind == 2]), 40)
        for job, (release, seen_ns) in zip(jobs, own):
            self.assertEqual((job.job, job.release_ns, job.begin_ns), (release.job, release.release_ns, release.begin_ns))
            self.assertEqual((job.input, job.value, job.skipped), (7 + release.job, release.job / 4, release.skipped))
            self.assertGreaterEqual(job.end_ns, seen_ns)

    def test_an_overrun_keeps_the_phase_and_is_counted(self):
        with takt.loop("overrun", period="5 ms") as loop:
            first = next(loop)
            time.sleep(0.0125)
            second = next(loop)
            self.assertEqual((second.release_ns - first.release_ns) % (5 * MS), 0)
            self.assertEqual(second.release_ns - first.release_ns, (1 + second.skipped) * 5 * MS)
            self.assertGreaterEqual(second.skipped, 1)
            self.assertEqual(loop.skipped, first.skipped + second.skipped)

    def test_other_threads_run_while_a_loop_sleeps_and_spins(self):
        for spin in (None, "40 ms"):
            stamps = []
            end = threading.Event()

            def work(stamps=stamps, end=end):
                while not end.is_set():
                    stamps.append(time.monotonic_ns())

            thread = threading.Thread(target=work)
            with takt.loop("gil", period="50 ms", spin=spin) as loop:
                thread.start()
                release = next(loop)
                end.set()
                thread.join()
            # Within the sleep alone: before and after it, the other thread has its turns anyway.
            within = [ns for ns in stamps if release.release_ns - 30 * MS < ns < release.release_ns - 5 * MS]
            self.assertGreater(len(within), 100, spin)

    def test_async_for_leaves_the_event_loop_to_others(self):
        async def main():
            ticks, releases = 0, []

            async def other():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            beside = asyncio.ensure_future(other())
            with takt.loop("async", hz=100) as loop:
                session = Session()
                session.attach("async")
                async for release in loop:
                    releases.append(release)
                    if len(releases) == 10:
                        break
                loop.end()
                jobs = session.take("async")
            beside.cancel()
            return ticks, releases, jobs

        ticks, releases, jobs = asyncio.run(main())
        self.assertGreater(ticks, 100)
        self.assertEqual([job.release_ns for job in jobs], [release.release_ns for release in releases])
        self.assertTrue(all((one.release_ns - releases[0].release_ns) % (10 * MS) == 0 for one in releases))
        self.assertTrue(all(one.begin_ns >= one.release_ns for one in releases))

    def test_a_loop_serves_one_event_loop_after_another_and_leaves_no_descriptor(self):
        def descriptors():
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        loop = takt.loop("twice", hz=500)
        before = descriptors()

        async def some():
            count = 0
            async for _ in loop:
                count += 1
                if count == 3:
                    return

        asyncio.run(some())
        asyncio.run(some())
        loop.close()
        self.assertLessEqual(descriptors(), before)

    def test_a_cancelled_task_can_wait_again(self):
        async def main():
            with takt.loop("cancelled", period="30 ms") as loop:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(loop.__anext__(), 0.005)
                release = await loop.__anext__()
                return release

        self.assertEqual(asyncio.run(main()).job, 0)

    def test_ctrl_c_ends_a_long_wait(self):
        code = (
            "import takt\nwith takt.loop('slow', period='50 s') as loop:\n    print('ready', flush=True)\n    next(loop)\n"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=30)
        self.assertIn(b"KeyboardInterrupt", error)

    def test_mistakes_are_one_sentence(self):
        loop = takt.loop("mistakes", hz=100)
        driven = takt.driven("mistakes-driven")
        for call, kind, words in [
            (lambda: takt.loop("mistakes", hz=100), takt.Error, "open already"),
            (lambda: takt.loop("", hz=100), takt.Error, "1 to 47 bytes"),
            (lambda: takt.loop("x" * 48, hz=100), takt.Error, "1 to 47 bytes"),
            (lambda: takt.loop("a\nb", hz=100), takt.Error, "control characters"),
            (lambda: takt.loop("p", period="0 ms"), takt.Error, "above 0"),
            (lambda: takt.loop("p", period="2 h"), ValueError, "2 ms"),
            (lambda: takt.loop("p", period="61 min"), takt.Error, "3600 s"),
            (lambda: takt.loop("p", period="1.5 ns"), ValueError, "nanosecond"),
            (lambda: takt.loop("p", hz=0), ValueError, "above 0"),
            (lambda: takt.loop("p", hz=float("nan")), ValueError, "above 0"),
            (lambda: takt.loop("p"), TypeError, "neither"),
            (lambda: takt.loop("p", hz=5, period="2 ms"), TypeError, "both"),
            (lambda: takt.loop("p", hz=5, deadline=0.002), TypeError, '"2 ms"'),
            (lambda: takt.loop("p", hz=5, deadline="0 s"), ValueError, "above 0"),
            (lambda: loop.value(1.0), takt.Error, "no job"),
            (lambda: loop.end(), takt.Error, "no job"),
            (lambda: loop.release(), takt.Error, "period"),
            (lambda: driven.wait(), takt.Error, "driven"),
            (lambda: driven.release(0), ValueError, "now_ns"),
            (lambda: takt.thread(policy="fifo"), takt.Error, "fifo:1 to fifo:99"),
            (lambda: takt.thread(policy="deadline:1ms"), takt.Error, "deadline:500us/2ms/2ms"),
            (lambda: takt.thread(policy="fifo:120"), takt.Error, "120"),
            (lambda: takt.thread(cpus="a"), takt.Error, "2-3,5"),
            (lambda: takt.thread(name=""), ValueError, "15 bytes"),
        ]:
            with self.assertRaises(kind) as caught:
                call()
            text = str(caught.exception)
            self.assertIn(words, text)
            self.assertNotIn("\n", text)
        loop.close()
        with self.assertRaisesRegex(takt.Error, "is closed"):
            next(loop)
        # Its name is free again; closing twice is closing once.
        loop.close()
        takt.loop("mistakes", hz=100).close()
        driven.close()

    def test_a_loop_in_use_is_refused_to_another_thread(self):
        loop = takt.loop("busy", period="100 ms")
        failed = []
        waiting = threading.Event()

        def use():
            waiting.wait()
            time.sleep(0.01)
            try:
                loop.value(1.0)
            except takt.Error as error:
                failed.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        waiting.set()
        next(loop)
        thread.join()
        loop.close()
        self.assertEqual(len(failed), 1)
        self.assertIn("one thread at a time", failed[0])

    def test_times_are_texts_or_timedeltas(self):
        for text in ("2 ms", "2ms", "2000 us", "2000 µs", ".002 s", timedelta(milliseconds=2)):
            with takt.loop("times", period=text):
                self.assertEqual(Session().names()["times"].period_ns, 2 * MS, text)


class Callbacks(unittest.TestCase):
    def test_each_call_is_a_job_released_by_its_stamp(self):
        camera = takt.callback("camera", deadline="20 ms", stamp=lambda image: image[0])

        @camera
        def on_image(image):
            """Takes a picture."""
            camera.stage("detect")
            camera.input(image[1])
            camera.value(0.5)
            return image[1]

        on_image((takt.now_ns(), 0))
        session = Session()
        session.attach("camera")
        stamps = [takt.now_ns() - 3 * MS for _ in range(3)]
        self.assertEqual([on_image((stamp, 10 + at)) for at, stamp in enumerate(stamps)], [10, 11, 12])
        jobs = [record for record in session.take("camera") if record.kind == 1]
        self.assertEqual([job.release_ns for job in jobs], stamps)
        self.assertEqual([(job.input, job.value) for job in jobs], [(10, 0.5), (11, 0.5), (12, 0.5)])
        self.assertTrue(all(job.begin_ns - job.release_ns >= 3 * MS for job in jobs))
        slot = session.names()["camera"]
        self.assertEqual((slot.kind, slot.deadline_ns, slot.stages), (2, 20 * MS, ["detect"]))
        self.assertEqual((on_image.__name__, on_image.__doc__), ("on_image", "Takes a picture."))
        camera.close()

    def test_calls_that_overlap_run_and_are_counted(self):
        timer = takt.callback("timer")
        inside, go_on = threading.Event(), threading.Event()

        @timer
        def call(wait):
            timer.value(1.0 if wait else 2.0)
            if wait:
                inside.set()
                go_on.wait()
            return wait

        call(False)
        session = Session()
        session.attach("timer")
        results = []
        thread = threading.Thread(target=lambda: results.append(call(True)))
        thread.start()
        inside.wait()
        self.assertIs(call(False), False)
        go_on.set()
        thread.join()
        self.assertEqual((results, timer.unrecorded), ([True], 1))
        # The value of the call without a record is not that of the one with it.
        self.assertEqual([job.value for job in session.take("timer")], [1.0])
        timer.close()

    def test_what_a_call_raises_goes_on_and_ends_the_job(self):
        failing = takt.callback("failing")

        @failing
        def call():
            raise KeyError("x")

        for _ in range(2):
            with self.assertRaises(KeyError):
                call()
        self.assertEqual(failing.unrecorded, 0)
        failing.close()

    def test_coroutines_are_jobs_to_their_end(self):
        message = takt.callback("message")

        @message
        async def on_message(sleep_s):
            message.value(sleep_s)
            await asyncio.sleep(sleep_s)
            return sleep_s

        async def main():
            await on_message(0)
            session = Session()
            session.attach("message")
            self.assertEqual(await asyncio.gather(on_message(0.01), on_message(0.002)), [0.01, 0.002])
            return session.take("message")

        (job,) = asyncio.run(main())
        self.assertEqual((job.value, message.unrecorded), (0.01, 1))
        self.assertGreaterEqual(job.end_ns - job.begin_ns, 9 * MS)
        message.close()

    def test_a_forked_child_declares_its_own(self):
        ticks = takt.callback("ticks")
        call = ticks(lambda: None)
        call()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                call()
                session = Session()
                session.attach("ticks")
                call()
                status = 0 if len(session.take("ticks")) == 1 else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        ticks.close()


class Threads(unittest.TestCase):
    def test_what_was_granted_is_what_the_kernel_says(self):
        cpu = min(os.sched_getaffinity(0))
        results = []

        def run():
            granted = takt.thread(name="own-name", policy="other:0", cpus=str(cpu), prefault_stack=65_536)
            with open("/proc/thread-self/comm") as comm:
                results.append((granted, comm.read().strip(), os.sched_getaffinity(0), threading.get_native_id()))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        granted, name, affinity, tid = results[0]
        self.assertEqual((granted.policy, granted.cpus, granted.tid), ("other", str(cpu), tid))
        self.assertEqual((name, affinity), ("own-name", {cpu}))
        self.assertTrue(granted)

    def test_what_is_refused_is_named_with_its_fix(self):
        results = []

        def run():
            # No machine has that CPU.
            results.append(takt.thread(cpus="1023"))
            try:
                takt.thread(cpus="1023", strict=True)
            except takt.NotGranted as error:
                results.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertFalse(results[0])
        self.assertIn("1023", results[0].not_granted[0])
        self.assertIn("1023", results[1])

    def test_a_real_time_policy_is_read_back(self):
        results = []

        def run():
            results.append((takt.thread(policy="fifo:5"), os.sched_getscheduler(0), os.sched_getparam(0).sched_priority))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        granted, policy, priority = results[0]
        if granted:
            # Threads that it starts do not get the policy with it.
            policy &= ~os.SCHED_RESET_ON_FORK
            self.assertEqual((granted.policy, policy, priority), ("fifo:5", os.SCHED_FIFO, 5))
        else:
            self.assertEqual(policy, os.SCHED_OTHER)
            self.assertIn("policy", granted.not_granted[0])


if __name__ == "__main__":
    unittest.main()
