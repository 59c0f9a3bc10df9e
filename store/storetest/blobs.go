package storetest

import (
	"bytes"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var blobCases = []Case{
	{
		Name:   "Blob/Result",
		Clause: "the result is stored with the settlement and read back byte for byte",
		Covers: []string{"J-22"},
		run:    blobResult,
	},
	{
		Name:   "Blob/Checkpoint",
		Clause: "a checkpoint saved by one attempt is handed to the next",
		Covers: []string{"J-73"},
		run:    blobCheckpoint,
	},
	{
		Name:   "Blob/Kept",
		Clause: "an update without a blob leaves the one that is there",
		run:    blobKept,
	},
	{
		Name:   "Blob/Metadata",
		Clause: "metadata can be replaced while the job lives; what was submitted is kept beside it",
		Covers: []string{"J-142", "J-145"},
		run:    blobMetadata,
	},
	{
		Name:   "Blob/Limits",
		Clause: "a result or checkpoint above its limit and invalid metadata are refused, and nothing changes",
		run:    blobLimits,
	},
	{
		Name:    "Blob/Reopen",
		Clause:  "results, checkpoints and metadata survive a restart",
		Reopens: true,
		run:     blobReopen,
	},
}

func blobResult(e *env) {
	for _, size := range []int{0, 1, 1000, 1 << 20} {
		job := e.add()
		j := e.one()
		result := e.noise(size)
		s := e.updated(store.Update{Ref: byID(job.ID), Apply: completing(j.State.Lease.Ref(), result), Result: result})
		if s.ResultBytes != size {
			e.Errorf("a result of %d bytes is recorded as %d", size, s.ResultBytes)
		}
		if got := e.get(job.ID).Result; !bytes.Equal(got, result) {
			e.Errorf("a result of %d bytes reads back as %d other ones", size, len(got))
		}
	}
}

func blobLimits(e *env) {
	limits := machine.DefaultLimits()
	job := e.add()
	j := e.one()
	lease := j.State.Lease.Ref()
	result, checkpoint := make([]byte, limits.ResultBytes+1), make([]byte, limits.CheckpointBytes+1)
	before := e.get(job.ID)
	for field, u := range map[string]store.Update{
		"result":     {Apply: completing(lease, result), Result: result},
		"checkpoint": {Apply: beating(lease, machine.Report{CheckpointBytes: len(checkpoint)}), Checkpoint: checkpoint},
		"priority":   {Apply: beating(lease, machine.Report{Progress: 0.5}), Metadata: &gq.Metadata{Priority: 99}},
	} {
		u.Ref = byID(job.ID)
		err := e.tryUpdate(u)[0].Err
		e.is("an update with an invalid "+field, err, gq.ErrInvalid)
		if faults := errs.FaultsOf(err); len(faults) != 1 || faults[0].Field != field {
			e.Errorf("the error is %v, want a fault of %s", err, field)
		}
		e.equal("the job after an update with an invalid "+field, e.get(job.ID), before)
	}
}

func blobCheckpoint(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.MaxAttempts = 10 }))
	save := func(j gq.Job, data []byte) {
		e.updated(store.Update{Ref: byID(job.ID), Apply: beating(j.State.Lease.Ref(), machine.Report{CheckpointBytes: len(data)}), Checkpoint: data})
	}
	hand := func(when string, j gq.Job, want []byte) {
		e.Helper()
		if !bytes.Equal(j.Checkpoint, want) || j.State.CheckpointBytes != len(want) {
			e.Errorf("%s the next attempt got a checkpoint of %d bytes (recorded as %d), want the %d saved", when, len(j.Checkpoint), j.State.CheckpointBytes, len(want))
		}
	}
	j := e.one(with(gq.WithCheckpoint))
	hand("at first", j, nil)
	one, two := e.noise(100), e.noise(300)[200:]
	save(j, one)
	s := e.fail(j, temporary)
	e.clock.Set(s.RunAt)
	j = e.one(with(gq.WithCheckpoint))
	hand("after a failure", j, one)
	save(j, two)
	e.clock.Advance(5 * time.Minute)
	j = e.one(with(gq.WithCheckpoint))
	hand("after a lost lease", j, two)
	e.update(job.ID, releasing(j.State.Lease.Ref(), 0, ""))
	j = e.one(with(gq.WithCheckpoint))
	hand("after a release", j, two)
	e.complete(j)
	if got := e.get(job.ID).Checkpoint; !bytes.Equal(got, two) {
		e.Errorf("the finished job has a checkpoint of %d bytes, want %d", len(got), len(two))
	}
}

func blobKept(e *env) {
	job := e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	e.updated(store.Update{
		Ref: byID(job.ID), Apply: beating(ref, machine.Report{CheckpointBytes: 1}), Checkpoint: []byte("c"), Result: []byte("r"),
		Metadata: &gq.Metadata{Priority: gq.PriorityNormal, CorrelationID: "m"},
	})
	e.update(job.ID, beating(ref, machine.Report{Progress: 0.5}))
	e.complete(j)
	got := e.get(job.ID)
	if string(got.Checkpoint) != "c" || string(got.Result) != "r" || got.Metadata.CorrelationID != "m" {
		e.Errorf("after updates without blobs: checkpoint %q, result %q, correlation id %q; want c, r, m", got.Checkpoint, got.Result, got.Metadata.CorrelationID)
	}
}

func blobMetadata(e *env) {
	spec := e.spec(func(s *gq.Spec) { s.Metadata.Tags = map[string]string{"a": "1", "b": "2"} })
	e.insert(spec)
	changed := gq.Metadata{Priority: gq.PriorityNormal, Tags: map[string]string{"b": "3"}, CorrelationID: "c", CallbackURL: "http://example.com/"}
	before := e.state(spec.ID)
	e.clock.Advance(time.Second)
	s := e.updated(store.Update{Ref: byID(spec.ID), Apply: updating(gq.PriorityNormal), Metadata: &changed})
	if s.Status != gq.StatusScheduled || !s.UpdatedAt.Equal(before.UpdatedAt) {
		e.Errorf("new metadata made the job %s, updated at %v; want SCHEDULED, %v", s.Status, s.UpdatedAt, before.UpdatedAt)
	}
	j := e.get(spec.ID)
	e.equal("the metadata as read", j.Metadata, changed)
	e.equal("the metadata as submitted", j.Spec.Metadata, spec.Metadata)
	e.equal("the metadata as listed", e.list(gq.Query{})[0].Metadata, changed)
	j = e.one()
	e.equal("the metadata as claimed", j.Metadata, changed)
	e.updated(store.Update{Ref: byID(spec.ID), Apply: updating(gq.PriorityNormal), Metadata: &spec.Metadata})
	e.equal("the metadata of a running job", e.get(spec.ID).Metadata, spec.Metadata)
	h := e.history(spec.ID)
	if last := h[len(h)-1]; last.Type != gq.EventUpdated || last.Status != gq.StatusRunning {
		e.Errorf("the last event is %s (%s), want %s (RUNNING)", last.Type, last.Status, gq.EventUpdated)
	}
	e.complete(j)
	answer := e.tryUpdate(store.Update{Ref: byID(spec.ID), Apply: updating(gq.PriorityNormal), Metadata: &changed})[0]
	e.is("new metadata for a finished job", answer.Err, gq.ErrIllegalMove)
	e.equal("the metadata of the finished job", e.get(spec.ID).Metadata, spec.Metadata)
}

func blobReopen(e *env) {
	job := e.add()
	j := e.one()
	ref := j.State.Lease.Ref()
	checkpoint, result := e.noise(1000), e.noise(2000)
	e.updated(store.Update{
		Ref: byID(job.ID), Apply: beating(ref, machine.Report{CheckpointBytes: len(checkpoint)}), Checkpoint: checkpoint,
		Metadata: &gq.Metadata{Priority: gq.PriorityNormal, Tags: map[string]string{"a": "b"}},
	})
	e.reopen()
	e.updated(store.Update{Ref: byID(job.ID), Apply: completing(ref, result), Result: result})
	want := e.get(job.ID)
	e.reopen()
	got := e.get(job.ID)
	e.equal("the job after a restart", got, want)
	if !bytes.Equal(got.Result, result) || !bytes.Equal(got.Checkpoint, checkpoint) || got.Metadata.Tags["a"] != "b" {
		e.Errorf("after restarts: result of %d bytes, checkpoint of %d, tags %v", len(got.Result), len(got.Checkpoint), got.Metadata.Tags)
	}
}
