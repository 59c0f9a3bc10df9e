// Package steps is the form of a checkpoint that keeps the recorded steps of a handler beside
// the handler's own checkpoint.
//
// A checkpoint without steps is stored as the handler wrote it. With steps it is
//
//	magic, 1 if there is a checkpoint of the handler and 0 otherwise, that checkpoint,
//	the number of steps, and for each its name and its result
//
// where numbers are uvarints, and texts and bytes have their length before them. A checkpoint
// of a handler that happens to begin with magic is stored in this form too, so that reading is
// never ambiguous.
package steps

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// magic begins a checkpoint in the form of this package.
const magic = "\x00gq-steps\x01"

// Step is a recorded step.
type Step struct {
	Name   string
	Result []byte
}

// Checkpoint is a checkpoint of a handler, and the steps it has recorded.
type Checkpoint struct {
	Own   []byte // nil if the handler has saved none
	Steps []Step // in the order of recording
}

// Append appends the stored form.
func Append(b []byte, c Checkpoint) []byte {
	if len(c.Steps) == 0 && !bytes.HasPrefix(c.Own, []byte(magic)) {
		return append(b, c.Own...)
	}
	b = append(b, magic...)
	if c.Own == nil {
		b = append(b, 0)
	} else {
		b = appendBytes(append(b, 1), c.Own)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Steps)))
	for _, s := range c.Steps {
		b = appendBytes(b, []byte(s.Name))
		b = appendBytes(b, s.Result)
	}
	return b
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// errDamaged reports a checkpoint that begins with magic and does not go on in this form.
var errDamaged = errors.New("the recorded steps are damaged")

// Parse reads the stored form. The result shares memory with data.
func Parse(data []byte) (c Checkpoint, err error) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return Checkpoint{Own: data}, nil
	}
	p := parser{rest: rest}
	switch p.number() {
	case 0:
	case 1:
		c.Own = p.bytes()
	default:
		p.bad = true
	}
	n := p.number()
	for ; n > 0 && !p.bad; n-- {
		c.Steps = append(c.Steps, Step{Name: string(p.bytes()), Result: p.bytes()})
	}
	if p.bad || len(p.rest) > 0 {
		return Checkpoint{}, errDamaged
	}
	return c, nil
}

type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) number() uint64 {
	n, used := binary.Uvarint(p.rest)
	if used <= 0 {
		p.bad = true
		return 0
	}
	p.rest = p.rest[used:]
	return n
}

func (p *parser) bytes() []byte {
	n := p.number()
	if p.bad || n > uint64(len(p.rest)) {
		p.bad = true
		return nil
	}
	data := p.rest[:n:n]
	p.rest = p.rest[n:]
	return data
}
