package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func TestSampleRecords(t *testing.T) {
	hour := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
	samples := []machine.Sample{{Time: hour}, {Time: hour.Add(10 * time.Second)}, {Time: hour.Add(time.Hour - SampleEvery)}}
	for i := range samples {
		for m := range samples[i].Values {
			samples[i].Values[m] = int64(i*1000 + m)
		}
	}
	got, err := decodeHour(store.Doc{Name: "2030-01-02T03", Data: encodeHour(samples)})
	if err != nil || len(got) != len(samples) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range got {
		if got[i] != samples[i] {
			t.Errorf("sample %d reads %+v, was %+v", i, got[i], samples[i])
		}
	}
	seq, last, err := decodeCursor(store.Doc{Data: encodeCursor(77, samples[1])})
	if err != nil || seq != 77 || last != samples[1] {
		t.Errorf("the cursor reads %d, %+v, %v", seq, last, err)
	}
	for _, data := range [][]byte{{}, {2}, {1, 0}, encodeHour(samples)[:20], append(encodeHour(nil), 0xff, 0xff, 0xff)} {
		if _, err := decodeHour(store.Doc{Name: "2030-01-02T03", Data: data}); !errors.Is(err, gq.ErrCorrupt) {
			t.Errorf("%x is read as an hour: %v", data, err)
		}
		if _, _, err := decodeCursor(store.Doc{Data: data}); !errors.Is(err, gq.ErrCorrupt) {
			t.Errorf("%x is read as a cursor: %v", data, err)
		}
	}
	if _, err := decodeHour(store.Doc{Name: "yesterday", Data: []byte{1}}); !errors.Is(err, gq.ErrCorrupt) {
		t.Errorf("an hour of that name: %v", err)
	}
}

// FuzzSampleRecords: decoded data encodes to the same bytes, or decoding fails.
func FuzzSampleRecords(f *testing.F) {
	f.Add([]byte{1})
	f.Add(encodeHour([]machine.Sample{{Time: time.Unix(0, 0).UTC()}}))
	f.Add(encodeCursor(5, machine.Sample{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if samples, err := decodeHour(store.Doc{Name: "1970-01-01T00", Data: data}); err == nil && len(data) > 0 {
			if again, err := decodeHour(store.Doc{Name: "1970-01-01T00", Data: encodeHour(samples)}); err != nil || len(again) != len(samples) {
				t.Errorf("%x reads %v, and then %v, %v", data, samples, again, err)
			}
		}
		if seq, last, err := decodeCursor(store.Doc{Data: data}); err == nil {
			b := encodeCursor(seq, last)
			if n, again, err := decodeCursor(store.Doc{Data: b}); err != nil || n != seq || again != last || !bytes.Equal(b, encodeCursor(n, again)) {
				t.Errorf("%x reads %d %v, and then %d %v, %v", data, seq, last, n, again, err)
			}
		}
	})
}
