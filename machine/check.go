package machine

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// faults collects faults; err is nil if there are none.
type faults []gq.Fault

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &gq.InvalidError{Faults: f}
}

func checkName(field, name string, required bool, f *faults) {
	switch {
	case name == "" && required:
		f.add(field, "is required")
	case len(name) > gq.MaxNameBytes:
		f.add(field, "%d bytes are more than %d", len(name), gq.MaxNameBytes)
	case isPrintable(name): // most are
	case !utf8.ValidString(name):
		f.add(field, "must be valid UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		f.add(field, "%q contains a control character", name)
	}
}

// isPrintable reports whether a text consists of printable ASCII characters.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// invalid returns an error with one fault.
func invalid(field, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}}
}

// CheckName checks a name: 1 to [gq.MaxNameBytes] bytes of valid UTF-8 without control
// characters.
func CheckName(field, name string) error {
	var f faults
	checkName(field, name, true, &f)
	return f.err()
}

// CheckQueueName checks the name of a queue: 1 to 256 letters, digits or any of - _ . : / which
// URLs and patterns can contain.
func CheckQueueName(name string) error {
	var f faults
	checkQueueName("queue", name, &f)
	return f.err()
}

func checkQueueName(field, name string, f *faults) {
	checkName(field, name, true, f)
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '-' && r <= ':' || r == '_' // - . / digits :
		if !ok {
			f.add(field, "%.64q contains %q; only letters, digits and - _ . : / may stand there", name, r)
			return
		}
	}
}

func checkMap(field string, m map[string]string, most int, f *faults) {
	if len(m) == 0 {
		return
	}
	if len(m) > most {
		f.add(field, "%d entries are more than %d", len(m), most)
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		switch v := m[k]; {
		case k == "":
			f.add(field, "an empty key is not allowed")
		case len(k)+len(v) > gq.MaxTagBytes:
			f.add(fmt.Sprintf("%s[%.64q]", field, k), "%d bytes are more than %d", len(k)+len(v), gq.MaxTagBytes)
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			f.add(fmt.Sprintf("%s[%.64q]", field, k), "must be valid UTF-8")
		}
	}
}

func checkURL(field, raw string, f *faults) {
	if len(raw) > gq.MaxURLBytes {
		f.add(field, "%d bytes are more than %d", len(raw), gq.MaxURLBytes)
		return
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		f.add(field, "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		f.add(field, "must begin with http:// or https://")
	case u.Hostname() == "":
		f.add(field, "has no host")
	case !portInRange(u.Port()):
		f.add(field, "port %.20s is not between 1 and 65535", u.Port())
	case u.User != nil:
		f.add(field, "must not carry a user or password")
	}
}

// portInRange reports whether the port of a URL is valid. Empty is the default of the scheme.
func portInRange(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}
