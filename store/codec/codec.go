// Package codec encodes states, specs, metadata, policies and events for stores that
// keep bytes.
//
// Each encoding begins with a version, and a reader rejects unknown ones. Absent fields
// cost one bit. A value has exactly one encoding: readers reject every other, so that
// encoding a decoded value yields the same bytes.
package codec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

const codecVersion = 1

// encoder appends fields to a buffer.
type encoder struct{ b []byte }

func (e *encoder) byte(v byte)      { e.b = append(e.b, v) }
func (e *encoder) uvarint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) varint(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) fixed(v uint64)   { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) string(v string)  { e.uvarint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) bytes(v []byte)   { e.uvarint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) id(v gq.JobID)    { e.b = append(e.b, v[:]...) }

// time writes an instant as nanoseconds since a base.
func (e *encoder) time(v time.Time, base int64) { e.varint(v.UnixNano() - base) }

// lease writes a lease id; a canonical UUID takes 17 bytes.
func (e *encoder) lease(v gq.LeaseID) {
	if raw, ok := v.UUID(); ok {
		e.byte(1)
		e.b = append(e.b, raw[:]...)
		return
	}
	e.byte(0)
	e.string(string(v))
}

func (e *encoder) strings(m map[string]string) {
	e.uvarint(uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e.string(k)
		e.string(m[k])
	}
}

// decoder reads fields from the front of a buffer. After the first fault it returns
// zeros and keeps the error.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %w", what, gq.ErrCorrupt)
	}
	d.b = nil
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("record too short")
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 { // longer than the shortest form
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) fixed() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// int reads a count that fits an int and is not negative.
func (d *decoder) int() int {
	v := d.uvarint()
	if v > math.MaxInt32 {
		d.fail("count out of range")
		return 0
	}
	return int(v)
}

// count reads the number of entries that follow: 1 to limit, each of at least size
// bytes.
func (d *decoder) count(size, limit int) int {
	n := d.int()
	if n == 0 || n > limit || n > len(d.b)/size {
		d.fail("bad number of entries")
		return 0
	}
	return n
}

// amount reads a number that is not negative.
func (d *decoder) amount() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.fail("amount out of range")
		return 0
	}
	return int64(v)
}

// flag reads a byte that is 0 or 1.
func (d *decoder) flag() bool {
	v := d.byte()
	if v > 1 {
		d.fail("bad flag")
	}
	return v == 1
}

// require fails if an encoder cannot have written the record.
func (d *decoder) require(ok bool, what string) {
	if d.err == nil && !ok {
		d.fail(what)
	}
}

func (d *decoder) string() string { return string(d.take(d.uvarint())) }

// stringLike reads a string and returns known, without allocating, if it is equal.
func (d *decoder) stringLike(known string) string {
	b := d.take(d.uvarint())
	if string(b) == known {
		return known
	}
	return string(b)
}

// bytes returns a part of the buffer, not a copy.
func (d *decoder) bytes() []byte { return d.take(d.uvarint()) }

func (d *decoder) id() (id gq.JobID) {
	copy(id[:], d.take(16))
	return id
}

func (d *decoder) time(base time.Time) time.Time {
	delta := d.varint()
	return time.Unix(0, base.UnixNano()+delta).UTC()
}

func (d *decoder) lease() gq.LeaseID {
	if !d.flag() {
		id := gq.LeaseID(d.string())
		_, short := id.UUID()
		d.require(!short, "lease in long form")
		return id
	}
	var raw [16]byte
	copy(raw[:], d.take(16))
	return gq.LeaseID(gq.JobID(raw).String())
}

func (d *decoder) strings() map[string]string {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	if n > uint64(len(d.b))/2 { // each entry takes at least two bytes
		d.fail("too many entries")
		return nil
	}
	m := make(map[string]string, min(n, gq.MaxTags))
	last := ""
	for i := range n {
		k := d.string()
		d.require(i == 0 || k > last, "entries out of order")
		m[k], last = d.string(), k
	}
	return m
}

func (d *decoder) version() {
	if v := d.byte(); d.err == nil && v != codecVersion {
		d.err = fmt.Errorf("record version %d, this program knows %d: %w", v, codecVersion, gq.ErrFormat)
		d.b = nil
	}
}

// end returns the first fault, or an error if bytes are left.
func (d *decoder) end(what string) error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("record too long")
	}
	if d.err != nil {
		return fmt.Errorf("decode %s: %w", what, d.err)
	}
	return nil
}

// presetPolicies are what the short forms of the presets mean, by number. They never change,
// because a stored policy is that of the time of its submission.
var presetPolicies = func() []gq.Policy {
	all := make([]gq.Policy, len(enum.All[gq.Preset]())+1)
	for _, p := range enum.All[gq.Preset]() {
		all[p] = p.Policy()
	}
	all[gq.PresetSemantics].MaxLeaseLosses = 0 // as it was when the first of them was written
	return all
}()

// policy writes a policy; one of presetPolicies takes two bytes.
func (e *encoder) policy(p *gq.Policy) {
	e.byte(byte(p.Preset))
	if p.Preset.Valid() && (p == &presetPolicies[p.Preset] || *p == presetPolicies[p.Preset]) {
		e.byte(0)
		return
	}
	e.byte(1)
	flags := byte(0)
	for i, set := range []bool{p.RetryTimeout, p.RetrySystem, p.RetryNever, p.CancelWins, p.HoldFault} {
		if set {
			flags |= 1 << i
		}
	}
	rare := byte(0) // which of the rare numbers follow
	for i, v := range rareNumbers(p) {
		if *v != 0 {
			rare |= 1 << i
		}
	}
	if rare != 0 {
		flags |= rareFlag
	}
	e.byte(flags)
	e.byte(byte(p.OnLoss))
	e.byte(byte(p.Extend))
	e.byte(byte(p.Backoff.Strategy))
	e.byte(byte(p.Backoff.Jitter))
	e.fixed(math.Float64bits(p.Backoff.Multiplier))
	e.string(p.Backoff.Custom)
	for _, v := range numbers(p) {
		e.varint(*v)
	}
	for _, v := range counts(p) {
		e.varint(int64(*v))
	}
	if rare == 0 {
		return
	}
	e.byte(rare)
	for _, v := range rareNumbers(p) {
		if *v != 0 {
			e.varint(*v)
		}
	}
}

// rareNumbers are written only if they are not zero.
func rareNumbers(p *gq.Policy) [3]*int64 {
	return [3]*int64{(*int64)(&p.StartWithin), (*int64)(&p.Retention), (*int64)(&p.Aging)}
}

// rareFlag says that a policy has some of them.
const rareFlag = 1 << 5

func numbers(p *gq.Policy) [8]*int64 {
	return [8]*int64{
		(*int64)(&p.Backoff.Initial), (*int64)(&p.Backoff.Max), (*int64)(&p.LeaseTTL), (*int64)(&p.Hold),
		(*int64)(&p.ExecutionTimeout), (*int64)(&p.Lifetime), (*int64)(&p.RunLifetime), (*int64)(&p.IdempotencyWindow),
	}
}

func counts(p *gq.Policy) [5]*int {
	return [5]*int{&p.MaxAttempts, &p.MaxLeaseLosses, &p.ExtendPPB, &p.RenewByPPB, &p.RenewalsMax}
}

// policy reads a policy. For one of presetPolicies it returns the process-wide variable,
// which must not leave this package.
func (d *decoder) policy() *gq.Policy {
	preset := gq.Preset(d.byte())
	if !preset.Valid() {
		d.fail("unknown preset")
		return &presetPolicies[gq.PresetJobModel]
	}
	if !d.flag() {
		return &presetPolicies[preset]
	}
	p := presetPolicies[preset]
	flags := d.byte()
	d.require(flags < 2*rareFlag, "unknown rules")
	for i, set := range []*bool{&p.RetryTimeout, &p.RetrySystem, &p.RetryNever, &p.CancelWins, &p.HoldFault} {
		*set = flags&(1<<i) != 0
	}
	p.OnLoss = gq.LossRule(d.byte())
	p.Extend = gq.ExtendMode(d.byte())
	p.Backoff.Strategy = gq.Strategy(d.byte())
	p.Backoff.Jitter = gq.Jitter(d.byte())
	p.Backoff.Multiplier = math.Float64frombits(d.fixed())
	p.Backoff.Custom = d.string()
	for _, v := range numbers(&p) {
		*v = d.varint()
	}
	for _, v := range counts(&p) {
		*v = int(d.varint())
	}
	rare := byte(0)
	if flags&rareFlag != 0 {
		rare = d.byte()
		d.require(rare != 0 && rare < 1<<len(rareNumbers(&p)), "unknown numbers")
	}
	for i, v := range rareNumbers(&p) {
		if *v = 0; rare&(1<<i) != 0 {
			*v = d.varint()
			d.require(*v != 0, "empty number")
		}
	}
	d.require(p != presetPolicies[preset], "preset in long form")
	d.require(d.err != nil || machine.CheckPolicy(p) == nil, "impossible policy")
	return &p
}

func (e *encoder) failure(f *gq.Failure) {
	e.byte(byte(f.Category))
	e.string(f.Code)
	e.string(f.Message)
	e.varint(int64(f.RetryAfter))
}

func (d *decoder) failure() *gq.Failure {
	f := &gq.Failure{
		Category: gq.Category(d.byte()), Code: d.string(), Message: d.string(),
		RetryAfter: time.Duration(d.varint()),
	}
	d.require(f.Category.Valid(), "unknown category")
	return f
}
