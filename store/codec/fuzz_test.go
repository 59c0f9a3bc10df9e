package codec_test

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

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// seeds adds the golden records and damaged versions of them.
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

// undump reads the output of hex.Dump.
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

// law checks what holds for every codec and any bytes: decoding takes memory in
// proportion, fails only with one of two errors, and encoding the result yields the
// same bytes.
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

// memory returns how many bytes a call allocates. Other goroutines may allocate
// meanwhile, so it takes the least of several measurements.
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
		law(t, b, func(b []byte) (gq.State, error) { return codec.DecodeState(b, 42, intern) },
			func(s gq.State) ([]byte, error) { return codec.AppendState(&s, nil) })
	})
}

func FuzzDecodeSpec(f *testing.F) {
	seeds(f, "spec", "spec-simple")
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, codec.DecodeSpec, func(s gq.Spec) ([]byte, error) { return codec.AppendSpec(&s, nil) })
	})
}

func FuzzDecodeMetadata(f *testing.F) {
	seeds(f, "metadata")
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, codec.DecodeMetadata, func(m gq.Metadata) ([]byte, error) { return codec.AppendMetadata(m, nil) })
	})
}

func FuzzDecodeEvent(f *testing.F) {
	seeds(f, "event")
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, rest, err := codec.DecodeEvent(b); err == nil {
			if !bytes.HasSuffix(b, rest) {
				t.Errorf("the rest is not the end of the input")
			}
			b = b[:len(b)-len(rest)]
		}
		law(t, b, func(b []byte) (gq.Event, error) {
			e, _, err := codec.DecodeEvent(b)
			return e, err
		}, func(e gq.Event) ([]byte, error) { return codec.AppendEvent(&e, nil) })
	})
}
