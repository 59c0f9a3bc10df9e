package gq_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// seeds adds the golden records and damaged forms of them.
func seeds(f *testing.F, names ...string) {
	f.Helper()
	f.Add([]byte(nil))
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
		if err != nil {
			f.Fatal(err)
		}
		raw := undump(f, string(text))
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
		f.Add(append(bytes.Clone(raw), 0))
		for i := 0; i < len(raw); i += 7 {
			damaged := bytes.Clone(raw)
			damaged[i] ^= 0xff
			f.Add(damaged)
		}
		for i := range raw {
			if raw[i] < 0x80 {
				f.Add(slices.Concat(raw[:i], []byte{raw[i] | 0x80, 0}, raw[i+1:])) // a number in a longer form
			}
		}
	}
}

// undump reads what hex.Dump wrote.
func undump(f *testing.F, text string) (raw []byte) {
	f.Helper()
	for line := range strings.Lines(text) {
		cells, _, _ := strings.Cut(strings.TrimSpace(line), "|")
		if len(cells) < 8 {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(cells[8:], " ", ""))
		if err != nil {
			f.Fatal(err)
		}
		raw = append(raw, b...)
	}
	return raw
}

// law is what holds for every codec and any bytes: it takes memory in
// proportion, refuses with one of two errors, and what it reads it writes with
// the same bytes.
func law[T any](t *testing.T, b []byte, decode func([]byte) (T, error), encode func(T) ([]byte, error)) {
	t.Helper()
	original := bytes.Clone(b)
	v, err := decode(b)
	if used, most := memory(func() { _, _ = decode(b) }), uint64(64*len(b)+64<<10); used > most {
		t.Errorf("%d bytes took %d bytes of memory", len(b), used)
	}
	if !bytes.Equal(b, original) {
		t.Error("decoding changed its input")
	}
	if err != nil {
		if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
			t.Errorf("refused with %v", err)
		}
		return
	}
	written, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, b) {
		t.Fatalf("read as\n%+v\nand written as\n%x, was\n%x", v, written, b)
	}
}

// memory is how many bytes a call takes. Others may allocate meanwhile, so the
// least of some measurements counts.
func memory(call func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 100 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		call()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least < 64<<10 {
			break
		}
	}
	return least
}

func FuzzDecodeState(f *testing.F) {
	seeds(f, "state", "state-waiting")
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, func(b []byte) (gq.State, error) { return gq.DecodeState(b, 42, intern) },
			func(s gq.State) ([]byte, error) { return s.AppendBinary(nil) })
	})
}

func FuzzDecodeSpec(f *testing.F) {
	seeds(f, "spec", "spec-simple")
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, gq.DecodeSpec, func(s gq.Spec) ([]byte, error) { return s.AppendBinary(nil) })
	})
}

func FuzzDecodeMetadata(f *testing.F) {
	seeds(f, "metadata")
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, gq.DecodeMetadata, func(m gq.Metadata) ([]byte, error) { return m.AppendBinary(nil) })
	})
}

func FuzzDecodeEvent(f *testing.F) {
	seeds(f, "event")
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, rest, err := gq.DecodeEvent(b); err == nil {
			if !bytes.HasSuffix(b, rest) {
				t.Errorf("the rest is not the end of the input")
			}
			b = b[:len(b)-len(rest)]
		}
		law(t, b, func(b []byte) (gq.Event, error) {
			e, _, err := gq.DecodeEvent(b)
			return e, err
		}, func(e gq.Event) ([]byte, error) { return e.AppendBinary(nil) })
	})
}

func FuzzParseJobID(f *testing.F) {
	f.Add("")
	f.Add("01020300-0000-4000-8000-000000000000")
	f.Add("01020300-0000-4000-8000-00000000000G")
	f.Add("0102030A-0000-4000-8000-0000000000FF")
	f.Add("00000000-0000-0000-0000-000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := gq.ParseJobID(text)
		if err != nil {
			if !errors.Is(err, gq.ErrInvalid) || !id.IsZero() || len(err.Error()) > 512 {
				t.Errorf("%q is refused with %v, %v", text, id, err)
			}
			return
		}
		if !strings.EqualFold(id.String(), text) || id.IsZero() {
			t.Errorf("%q is read as %v", text, id)
		}
		var back gq.JobID
		if written, err := id.MarshalText(); err != nil || back.UnmarshalText(written) != nil || back != id {
			t.Errorf("%v is written as %q and read as %v: %v", id, written, back, err)
		}
	})
}

func FuzzParseNames(f *testing.F) {
	for _, name := range []string{"", "PENDING", "0", "4", "5", "job.started", "exponential", "full", "AFTER_ANY", "SYSTEM", "jobmodel", "pending"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		checkParsed(t, name, gq.ParseStatus)
		checkParsed(t, name, gq.ParseEventType)
		checkParsed(t, name, gq.ParsePreset)
		checkParsed(t, name, gq.ParseCategory)
		checkParsed(t, name, gq.ParseDependencyKind)
		checkParsed(t, name, gq.ParseStrategy)
		checkParsed(t, name, gq.ParseJitter)
		if p, err := gq.ParsePriority(name); err == nil && p.String() != name && name != string(rune('0'+p.Level())) {
			t.Errorf("%q is read as %v", name, p)
		}
	})
}

func checkParsed[T interface {
	comparable
	String() string
}](t *testing.T, name string, parse func(string) (T, error)) {
	t.Helper()
	v, err := parse(name)
	switch {
	case err == nil && v.String() != name:
		t.Errorf("%q is read as %v", name, v)
	case err != nil && (!errors.Is(err, gq.ErrInvalid) || v != *new(T) || len(err.Error()) > 1024):
		t.Errorf("%q is refused with %v, %v", name, v, err)
	}
}

type fuzzedError struct {
	text     string
	status   int
	sqlState string
	timeout  bool
	inner    error
}

func (e *fuzzedError) Error() string    { return e.text }
func (e *fuzzedError) StatusCode() int  { return e.status }
func (e *fuzzedError) SQLState() string { return e.sqlState }
func (e *fuzzedError) Timeout() bool    { return e.timeout }
func (e *fuzzedError) Unwrap() error    { return e.inner }

func FuzzClassify(f *testing.F) {
	f.Add("HTTP 503", 0, "", false, "")
	f.Add("HTTP/1.1 status code: 4294967297", 404, "40P01", true, "deadlock detected")
	f.Add("status\x00 429 \xff", -1, "23", false, "not found")
	f.Fuzz(func(t *testing.T, text string, status int, sqlState string, timeout bool, inner string) {
		err := &fuzzedError{text, status, sqlState, timeout, errors.New(inner)}
		v := gq.Classify(err)
		if !v.Category.Valid() || len(v.Message) > gq.MaxMessageBytes || len(v.Code) > gq.MaxNameBytes ||
			!utf8.ValidString(v.Message) || !utf8.ValidString(v.Code) || strings.ContainsRune(v.Message, 0) {
			t.Errorf("classified as %+v", v)
		}
		if again := gq.Classify(err); again != v {
			t.Errorf("classified as %+v, and then as %+v", v, again)
		}
	})
}
