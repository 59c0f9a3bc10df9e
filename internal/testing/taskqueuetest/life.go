package taskqueuetest

import (
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
)

var lifeCases = []testCase{
	{
		name: "Life/Done", clause: "a job goes from QUEUED over RUNNING to DONE, its times grow along, and its result has its output",
		Covers: []string{"T-03", "T-11", "T-35", "T-36", "T-41", "T-71", "T-104", "T-107", "T-108", "T-125", "T-145", "T-146", "T-147", "T-150", "T-151", "T-193", "T-194", "T-209", "T-218", "T-258"},
		run:    lifeDone,
	},
	{
		name: "Life/Queued", clause: "while a job waits it has neither start nor end nor result",
		Covers: []string{"T-135", "T-145", "T-146", "T-150"},
		run:    lifeQueued,
	},
	{
		name: "Life/Output", clause: "output is as large as asked for up to 262144 bytes, with its SHA-256; a larger one fails the job",
		Covers: []string{"T-147", "T-152", "T-201", "T-202", "T-203", "T-260"},
		run:    lifeOutput,
	},
	{
		name: "Life/Slots", clause: "all slots are used, and no more",
		Covers: []string{"T-14", "T-256"},
		run:    lifeSlots,
	},
	{
		name: "Life/Reads", clause: "reads can be repeated: once a job has ended they answer the same",
		Covers: []string{"T-223"},
		run:    lifeReads,
	},
	{
		name: "Life/Many", clause: "every accepted job ends once, with its result",
		Covers: []string{"T-46", "T-93", "T-260"},
		run:    lifeMany,
	},
}

func lifeDone(t *testing.T, s *system) {
	for ms := uint32(400); ; ms *= 4 {
		seen := s.lives(t, ms)
		if slices.Contains(seen, publicpb.JobStatus_RUNNING) {
			return
		}
		if ms > 5000 { // no poll is so late that such a job has already ended
			t.Fatalf("a job of %d ms was seen %v", ms, slices.Compact(seen))
		}
	}
}

// lives follows a job of ms milliseconds to its end, and returns the statuses it saw.
func (s *system) lives(t *testing.T, ms uint32) (seen []publicpb.JobStatus) {
	t.Helper()
	accepted := submit(t, s.first(), work(ms, 1000), "")
	id := accepted.GetJobId()
	last := publicpb.JobStatus_QUEUED
	end := s.until(t, id, func(now *publicpb.GetJobStatusResponse) bool {
		if now.GetJobId() != id || now.GetStatus() < last || now.GetFailureReason() != "" || now.GetCancelRequested() {
			t.Fatalf("status %v after %v", now, last)
		}
		started, finished := now.GetStatus() >= publicpb.JobStatus_RUNNING, now.GetStatus() > publicpb.JobStatus_RUNNING
		if !near(now.GetCreatedAtMs()) || started != (now.GetStartedAtMs() > 0) || finished != (now.GetFinishedAtMs() > 0) {
			t.Fatalf("times of %v", now)
		}
		if !finished {
			early := s.result(t, id)
			if !early.GetResultReady() && (early.GetTerminalStatus() != 0 || early.GetChecksum() != taskwork.EmptyChecksum || len(early.GetOutputBytes()) > 0) {
				t.Fatalf("result before the end: %v", early)
			}
		}
		last = now.GetStatus()
		seen = append(seen, last)
		return finished
	})
	if end.GetStatus() != publicpb.JobStatus_DONE {
		t.Errorf("the job was seen %v", slices.Compact(seen))
	}
	if end.GetStartedAtMs() < end.GetCreatedAtMs() || end.GetFinishedAtMs()-end.GetStartedAtMs() < int64(ms)-10 {
		t.Errorf("times of %v", end)
	}
	got := s.result(t, id)
	if !got.GetResultReady() || got.GetTerminalStatus() != publicpb.JobStatus_DONE || got.GetJobId() != id || got.GetRuntimeMs() < ms-10 {
		t.Errorf("result %v", got)
	}
	if !taskwork.Matches(got.GetOutputBytes(), "contract", 1000) || got.GetChecksum() != taskwork.Checksum(got.GetOutputBytes()) {
		t.Error("output or checksum is wrong")
	}
	return seen
}

func lifeQueued(t *testing.T, s *system) {
	s.occupy(t)
	id := submit(t, s.first(), work(0, 0), "").GetJobId()
	now := s.status(t, id)
	if now.GetJobId() != id || now.GetStatus() != publicpb.JobStatus_QUEUED || now.GetCancelRequested() || now.GetStartedAtMs() != 0 || now.GetFinishedAtMs() != 0 || !near(now.GetCreatedAtMs()) {
		t.Errorf("status %v", now)
	}
	if got := s.result(t, id); got.GetResultReady() || got.GetTerminalStatus() != 0 {
		t.Errorf("result %v", got)
	}
	s.cancel(t, id, "")
}

func lifeOutput(t *testing.T, s *system) {
	for _, size := range []uint32{0, 1, taskwork.MaxOutputBytes} {
		id := submit(t, s.first(), work(0, size), "").GetJobId()
		s.until(t, id, is(publicpb.JobStatus_DONE))
		got := s.result(t, id)
		if uint32(len(got.GetOutputBytes())) != size || got.GetChecksum() != taskwork.Checksum(got.GetOutputBytes()) {
			t.Errorf("%d bytes were asked for, %d came, checksum %s", size, len(got.GetOutputBytes()), got.GetChecksum())
		}
		if size == 0 && got.GetChecksum() != taskwork.EmptyChecksum {
			t.Errorf("checksum of nothing is %s", got.GetChecksum())
		}
	}
	id := submit(t, s.first(), work(0, taskwork.MaxOutputBytes+1), "").GetJobId()
	end := s.until(t, id, ended)
	got := s.result(t, id)
	if end.GetStatus() != publicpb.JobStatus_FAILED || end.GetFailureReason() != taskwork.TooLarge {
		t.Errorf("too large an output: %v", end)
	}
	if !got.GetResultReady() || got.GetTerminalStatus() != publicpb.JobStatus_FAILED || len(got.GetOutputBytes()) > 0 || got.GetOutputSummary() == "" || got.GetChecksum() != taskwork.EmptyChecksum {
		t.Errorf("result of too large an output: %v", got)
	}
}

func lifeSlots(t *testing.T, s *system) {
	for ms := uint32(300); ; ms *= 4 {
		most := s.atOnce(t, ms)
		if most == s.Slots {
			return
		}
		if most > s.Slots || ms > 4000 { // short ones may end before the next are submitted
			t.Fatalf("%d jobs of %d ms ran at the same time, want %d", most, ms, s.Slots)
		}
	}
}

// atOnce submits more jobs than there are slots, and returns how many ran at the same
// time.
func (s *system) atOnce(t *testing.T, ms uint32) (most int) {
	t.Helper()
	var ids []string
	for i := range 24 {
		ids = append(ids, submit(t, s.nodes[i%len(s.nodes)], work(ms, 0), "").GetJobId())
	}
	type change struct {
		at    int64
		delta int
	}
	var changes []change
	for _, id := range ids {
		end := s.until(t, id, ended)
		changes = append(changes, change{end.GetStartedAtMs(), 1}, change{end.GetFinishedAtMs(), -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.delta - b.delta // a slot is freed before it is reused
	})
	running := 0
	for _, c := range changes {
		running += c.delta
		most = max(most, running)
	}
	return most
}

func lifeReads(t *testing.T, s *system) {
	id := submit(t, s.first(), work(0, 100), "").GetJobId()
	end := s.until(t, id, ended)
	got := s.result(t, id)
	for range 5 {
		if again := s.status(t, id); !proto.Equal(again, end) {
			t.Errorf("status %v, then %v", end, again)
		}
		if again := s.result(t, id); !proto.Equal(again, got) {
			t.Errorf("result %v, then %v", got, again)
		}
	}
}

func lifeMany(t *testing.T, s *system) {
	const clients, each = 8, 25
	ids := make([][]string, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range each {
				answer, err := s.nodes[(c+i)%len(s.nodes)].SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: work(uint32(i%3), uint32(i))})
				if err != nil {
					t.Errorf("submit: %v", err)
					return
				}
				ids[c] = append(ids[c], answer.GetJobId())
			}
		})
	}
	all.Wait()
	for _, id := range slices.Concat(ids...) {
		end := s.until(t, id, ended)
		got := s.result(t, id)
		if end.GetStatus() != publicpb.JobStatus_DONE || !got.GetResultReady() || got.GetTerminalStatus() != publicpb.JobStatus_DONE {
			t.Errorf("%s ended %v with the result %v", id, end.GetStatus(), got.GetTerminalStatus())
		}
	}
}
