package gq_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func randomBytes(t *rapid.T) (b [16]byte) {
	copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
	return b
}

func TestJobIDForm(t *testing.T) {
	spec.Covers(t, "J-05")
	rapid.Check(t, func(t *rapid.T) {
		random := randomBytes(t)
		id := machine.NewJobID(random)
		if !id.Valid() || id.IsZero() || !uuid4.MatchString(id.String()) {
			t.Fatalf("%s out of %x is not a version 4 UUID", id, random)
		}
		// 122 of the 128 bits are as random as what was put in.
		for i := range random {
			mask := byte(0xff)
			switch i {
			case 6:
				mask = 0x0f
			case 8:
				mask = 0x3f
			}
			if id[i]&mask != random[i]&mask {
				t.Fatalf("byte %d of %x was lost in %s", i, random, id)
			}
		}
		for _, text := range []string{id.String(), strings.ToUpper(id.String())} {
			if parsed, err := gq.ParseJobID(text); parsed != id || err != nil {
				t.Fatalf("%s is read as %s, %v", text, parsed, err)
			}
		}
	})
}

func TestJobIDValid(t *testing.T) {
	for text, want := range map[string]bool{
		"f47ac10b-58cc-4372-a567-0e02b2c3d479": true,
		"f47ac10b-58cc-1372-a567-0e02b2c3d479": false, // version 1
		"f47ac10b-58cc-4372-c567-0e02b2c3d479": false, // another variant
		"f47ac10b-58cc-4372-7567-0e02b2c3d479": false,
	} {
		id, err := gq.ParseJobID(text)
		if err != nil || id.Valid() != want {
			t.Errorf("%s: valid %v, %v; want %v", text, id.Valid(), err, want)
		}
	}
	if (gq.JobID{}).Valid() || !(gq.JobID{}).IsZero() {
		t.Error("the zero id is an id")
	}
}

func TestParseJobIDRefuses(t *testing.T) {
	const good = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
	for _, text := range []string{
		"", "x", good[:35], good + "0", " " + good, strings.ReplaceAll(good, "-", ""),
		"f47ac10b558cc-4372-a567-0e02b2c3d479", "g47ac10b-58cc-4372-a567-0e02b2c3d479",
		"f47ac10b-58cc-4372-a567-0e02b2c3d47-", "{" + good[1:35] + "}", "urn:uuid:" + good,
		"00000000-0000-0000-0000-000000000000",
	} {
		if id, err := gq.ParseJobID(text); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%q is read as %s, %v", text, id, err)
		}
	}
	if _, err := gq.ParseJobID(strings.Repeat("x", 1<<20)); len(err.Error()) > 200 {
		t.Errorf("the error repeats %d bytes", len(err.Error()))
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if id, err := gq.ParseJobID(text); err == nil && !strings.EqualFold(id.String(), text) {
			t.Fatalf("%q is read as %s", text, id)
		}
	})
}

func TestJobIDJSON(t *testing.T) {
	type record struct {
		ID     gq.JobID `json:"id"`
		Parent gq.JobID `json:"parent"`
	}
	in := record{ID: machine.NewJobID([16]byte{15: 7})}
	text, err := json.Marshal(in)
	if want := `{"id":"00000000-0000-4000-8000-000000000007","parent":""}`; err != nil || string(text) != want {
		t.Fatalf("%s, %v; want %s", text, err, want)
	}
	var out record
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Errorf("read back as %+v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"id":"7"}`), &out); err == nil {
		t.Error("a malformed id is read")
	}
}

// A web handler parses the ids in its paths, and a program makes the id of a workflow that it may
// submit twice.
func TestParseIDs(t *testing.T) {
	job := machine.NewJobID([16]byte{1, 2, 3})
	if got, err := gq.ParseJobID(job.String()); got != job || err != nil {
		t.Errorf("%s is parsed as %s, %v", job, got, err)
	}
	one, two := gq.NewWorkflowID(), gq.NewWorkflowID()
	if got, err := gq.ParseWorkflowID(one.String()); got != one || err != nil {
		t.Errorf("%s is parsed as %s, %v", one, got, err)
	}
	if ms := binary.BigEndian.Uint64(append([]byte{0, 0}, one[:6]...)); !one.Valid() || one == two || time.Since(time.UnixMilli(int64(ms))).Abs() > time.Minute {
		t.Errorf("new ids of workflows are %s and %s", one, two)
	}
	for _, text := range []string{"", "7", "00000000-0000-0000-0000-000000000000", job.String() + "0"} {
		if id, err := gq.ParseJobID(text); !errors.Is(err, gq.ErrInvalid) || !id.IsZero() {
			t.Errorf("%q is parsed as job %s, %v", text, id, err)
		}
		if id, err := gq.ParseWorkflowID(text); !errors.Is(err, gq.ErrInvalid) || !id.IsZero() {
			t.Errorf("%q is parsed as workflow %s, %v", text, id, err)
		}
	}
	if _, err := gq.ParseWorkflowID(job.String()); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("the id of a job is parsed as that of a workflow: %v", err)
	}
}

func TestLeaseIDForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if id := machine.NewLeaseID(randomBytes(t)); !uuid4.MatchString(string(id)) {
			t.Fatalf("%s is not in UUID form", id)
		}
	})
}
