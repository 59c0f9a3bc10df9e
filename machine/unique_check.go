package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// checkUnique reports contradictions of a unique rule with defaults filled in.
func checkUnique(s *gq.Spec, f *faults) {
	u := &s.Unique
	if u.IsZero() {
		return
	}
	if !u.While.Valid() {
		f.add("unique.while", "must be one of waiting, live, done, period")
	}
	if !u.OnCollision.Valid() {
		f.add("unique.on_collision", "must be one of existing, refuse, replace, debounce, throttle")
	}
	if s.Key.Name == "" {
		f.add("unique", "needs a key (idempotency_key) or fields by which the job is unique")
	}
	switch {
	case u.While == gq.ForPeriod && (u.Period <= 0 || u.Period > gq.MaxDuration):
		f.add("unique.period", "%v is not between 1ns and %v; a job that is unique for a period or throttled needs one", u.Period, gq.MaxDuration)
	case u.While != gq.ForPeriod && u.Period != 0:
		f.add("unique.period", "is only for jobs that are unique for a period (unique.while period)")
	}
	switch u.OnCollision {
	case gq.Throttled:
		if u.While != gq.ForPeriod {
			f.add("unique.while", "throttle needs period, not %s; give unique.period, the time between two jobs, and leave this out", u.While)
		} else if life := s.Policy.Lifetime; life > 0 && u.Period >= life {
			f.add("unique.period", "%v is not shorter than the job's lifetime of %v (policy.lifetime), which would end before a throttled job may run", u.Period, life)
		} else if within := s.Policy.StartWithin; within > 0 && u.Period >= within {
			f.add("unique.period", "%v is not shorter than the job's start deadline of %v (policy.start_within), which would end before a throttled job may run", u.Period, within)
		}
	case gq.Debounced:
		if s.Delay <= 0 {
			f.add("delay", "debounce needs a delay above 0, by which each submission postpones the job")
		}
		if u.While == gq.ForPeriod {
			f.add("unique.while", "debounce cannot be for a period; use waiting")
		}
	}
	checkFields(u.Fields, f)
}

func checkFields(fields []string, f *faults) {
	if len(fields) > gq.MaxUniqueFields {
		f.add("unique.fields", "%d fields are more than %d", len(fields), gq.MaxUniqueFields)
	}
	for i, name := range fields {
		checkName(fmt.Sprintf("unique.fields[%d]", i), name, true, f)
	}
}

// UniqueName returns the key of a job that is unique by fields of its payload: a JSON object
// of their values in canonical form, or its hash if it is too long. It ignores the order in
// which the fields are given. The error is [gq.ErrInvalid] with every fault.
func UniqueName(s *gq.Spec) (string, error) {
	var f faults
	if s.Key.Name != "" {
		f.add("unique.fields", "a job is unique by a key (idempotency_key) or by fields, not by both")
	}
	if checkFields(s.Unique.Fields, &f); len(f) > 0 {
		return "", f.err()
	}
	if !s.Payload.IsJSON() {
		f.add("unique.fields", "need a JSON payload, not %.64q; use a key instead", s.Payload.ContentType)
		return "", f.err()
	}
	decoder := json.NewDecoder(bytes.NewReader(s.Payload.Data))
	decoder.UseNumber()
	var payload any
	if err := decoder.Decode(&payload); err != nil {
		f.add("payload", "is not JSON, so the job cannot be unique by its fields")
		return "", f.err()
	}
	values := make(map[string]any, len(s.Unique.Fields))
	for i, name := range s.Unique.Fields {
		value, ok := fieldOf(payload, name)
		if !ok {
			f.add(fmt.Sprintf("unique.fields[%d]", i), "the payload has no field %.64q", name)
			continue
		}
		values[name] = canonical(value)
	}
	if len(f) > 0 {
		return "", f.err()
	}
	text, err := json.Marshal(values) // sorts names
	if err != nil {
		return "", fmt.Errorf("key of unique fields: %w", err)
	}
	if utf8.RuneCount(text) <= gq.MaxKeyRunes {
		return string(text), nil
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// fieldOf returns a field of an object. A dotted name is that of a field itself or the path to
// a field of a field.
func fieldOf(object any, name string) (any, bool) {
	fields, ok := object.(map[string]any)
	if !ok {
		return nil, false
	}
	if value, ok := fields[name]; ok {
		return value, true
	}
	for i := range name {
		if name[i] != '.' {
			continue
		}
		if inner, ok := fields[name[:i]]; ok {
			if value, ok := fieldOf(inner, name[i+1:]); ok {
				return value, true
			}
		}
	}
	return nil, false
}

// canonical returns a decoded JSON value with one form for each number: 1, 1.0 and 1e0 are
// equal. Numbers keep all their digits.
func canonical(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = canonical(v[name])
		}
		return v
	case []any:
		for i := range v {
			v[i] = canonical(v[i])
		}
		return v
	case json.Number:
		return json.Number(canonicalNumber(v.String()))
	default:
		return v
	}
}

// wholeDigits is up to how many digits a whole number is written without an exponent.
const wholeDigits = 400

// canonicalNumber returns the one form of a JSON number that all numbers with its value have. The
// form of numbers that a float64 holds exactly as written is that of its shortest decimal.
func canonicalNumber(text string) string {
	digits, exponent, ok := decimal(text)
	if !ok {
		return text // its exponent is absurd
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign = "-"
	}
	switch {
	case digits == "":
		return "0"
	case exponent >= 0 && len(digits)+exponent <= wholeDigits:
		return sign + digits + strings.Repeat("0", exponent)
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		short, err := json.Marshal(f)
		if d, e, ok := decimal(string(short)); err == nil && ok && d == digits && e == exponent {
			return string(short)
		}
	}
	return sign + digits + "e" + strconv.Itoa(exponent)
}

// decimal returns the value of a JSON number without its sign, as digits that neither begin nor end
// with 0, times a power of ten.
func decimal(text string) (digits string, exponent int, ok bool) {
	text = strings.TrimPrefix(text, "-")
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		n, err := strconv.ParseInt(text[at+1:], 10, 32)
		if err != nil {
			return "", 0, false
		}
		text, exponent = text[:at], int(n)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	return short, exponent - len(fraction) + len(digits) - len(short), true
}
