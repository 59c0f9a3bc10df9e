package engine

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// An hour is encoded as a list of samples, each with its interval number and values. A cursor
// is encoded as an event number and the newest sample.

func encodeHour(samples []machine.Sample) []byte {
	b := make([]byte, 0, 32*len(samples)+1)
	b = append(b, 1) // version
	for i := range samples {
		s := &samples[i]
		b = binary.AppendUvarint(b, uint64(s.Time.Sub(s.Time.Truncate(sampleHour))/SampleEvery))
		b = appendValues(b, s)
	}
	return b
}

func appendValues(b []byte, s *machine.Sample) []byte {
	for _, v := range s.Values {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func decodeHour(d store.Doc) (samples []machine.Sample, err error) {
	if d.Data == nil {
		return nil, nil
	}
	corrupt := fmt.Errorf("document %s/%s: %w", d.Kind, d.Name, gq.ErrCorrupt)
	begin, err := time.Parse(sampleHourName, d.Name)
	if err != nil || len(d.Data) == 0 || d.Data[0] != 1 {
		return nil, corrupt
	}
	for b := d.Data[1:]; len(b) > 0; {
		at, n := binary.Uvarint(b)
		if n <= 0 || at >= uint64(sampleHour/SampleEvery) {
			return nil, corrupt
		}
		s := machine.Sample{Time: begin.Add(time.Duration(at) * SampleEvery)}
		if b, err = readValues(b[n:], &s); err != nil {
			return nil, corrupt
		}
		samples = append(samples, s)
	}
	return samples, nil
}

func readValues(b []byte, s *machine.Sample) ([]byte, error) {
	for m := range s.Values {
		v, n := binary.Varint(b)
		if n <= 0 {
			return nil, gq.ErrCorrupt
		}
		s.Values[m], b = v, b[n:]
	}
	return b, nil
}

func encodeCursor(seq uint64, last machine.Sample) []byte {
	b := binary.AppendUvarint([]byte{1}, seq)
	b = binary.AppendVarint(b, last.Time.Unix())
	return appendValues(b, &last)
}

func decodeCursor(d store.Doc) (seq uint64, last machine.Sample, err error) {
	corrupt := fmt.Errorf("document %s/%s: %w", d.Kind, d.Name, gq.ErrCorrupt)
	if len(d.Data) == 0 || d.Data[0] != 1 {
		return 0, last, corrupt
	}
	seq, n := binary.Uvarint(d.Data[1:])
	if n <= 0 {
		return 0, last, corrupt
	}
	b := d.Data[1+n:]
	at, n := binary.Varint(b)
	if n <= 0 {
		return 0, last, corrupt
	}
	last.Time = time.Unix(at, 0).UTC()
	if b, err = readValues(b[n:], &last); err != nil || len(b) > 0 {
		return 0, last, corrupt
	}
	return seq, last, nil
}
