package matching

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// Each of the six notices has exactly its documented members.
func TestNoticeMembers(t *testing.T) {
	spec.Covers(t, "M-122", "M-123", "M-124", "M-125", "M-126", "M-127")
	full := matchmaker.Notice{
		Seq: 1, Time: time.Now(), Job: machine.NewJobID([16]byte{1}), Provider: "p", Lease: "l", Deadline: time.Now(),
		Digest: "d", Reason: "r", Penalty: 1,
	}
	for name, want := range map[string]string{
		matchmaker.JobAssigned:     "deadline jobId leaseId providerId",
		matchmaker.JobCompleted:    "digest jobId leaseId providerId",
		matchmaker.JobExpired:      "jobId reason",
		matchmaker.LeaseRenewed:    "deadline leaseId",
		matchmaker.LeaseCancelled:  "leaseId reason",
		matchmaker.ProviderSlashed: "penalty providerId reason",
	} {
		n := full
		n.Type = name
		text, err := json.Marshal(noticeOf(&n))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Type string
			Data map[string]any
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if keys := strings.Join(slices.Sorted(maps.Keys(got.Data)), " "); keys != want || got.Type != name {
			t.Errorf("%s has %s, want %s", name, keys, want)
		}
	}
}
