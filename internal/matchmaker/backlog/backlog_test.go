package backlog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/backlog"
	"github.com/gopherqueue/gq/match"
)

// TestSelectListed takes the jobs that the store lists, and others only where too few of them can be taken.
func TestSelectListed(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	policy := match.DefaultPolicy()
	policy.Starvation.Every = 0
	b := backlog.New(&policy, func(j *match.Job) int { return len(j.Spec.Model) })
	var ids []gq.JobID
	for i := range 10 {
		id := gq.JobID{byte(i)}
		ids = append(ids, id)
		j := &backlog.Job{JobID: id, Job: match.Job{
			ID: id.String(), Kind: match.AI, Spec: match.Demand{Model: "m"}, MaxFee: int64(1000 * (10 - i)), EnqueuedAt: now.Unix(), Units: 1,
		}}
		switch i {
		case 7:
			j.Spec.Model = "" // nobody serves it
		case 8:
			j.RunAt = now.Add(time.Hour)
		case 9:
			j.Kind = match.Quantum
		}
		b.Put(j, now)
	}
	for _, test := range []struct {
		batch  int64
		listed []gq.JobID
		want   []int
	}{
		{3, nil, []int{0, 1, 2}},
		{3, ids[:6], []int{0, 1, 2}},
		{2, []gq.JobID{ids[5], ids[4], ids[6], ids[9]}, []int{4, 5}},            // it decides, whatever is here
		{3, []gq.JobID{ids[6], ids[7], ids[8], {99}, ids[3]}, []int{0, 1, 2}},   // too few: those here follow
		{100, []gq.JobID{ids[9], ids[0]}, []int{0, 1, 2, 3, 4, 5, 6, 9}},        // both kinds
		{3, []gq.JobID{ids[3], ids[3], ids[4], ids[5], ids[6]}, []int{3, 4, 5}}, // none twice
	} {
		var got []int
		for _, j := range b.Select(now, test.batch, test.listed) {
			got = append(got, int(j.JobID[0]))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%d of %s are %v, want %v", test.batch, fmt.Sprint(test.listed), got, test.want)
		}
	}
}
