package machine

import "github.com/gopherqueue/gq"

// TraceParent returns the W3C trace context that a job was submitted in, for its events, or ""
// if it has none or an invalid one.
func TraceParent(s *gq.Spec) string {
	if len(s.Attributes) == 0 {
		return ""
	}
	text := s.Attributes[gq.AttributeTraceParent]
	if !validTraceParent(text) {
		return ""
	}
	return text
}

// validTraceParent reports whether text has the form VERSION-TRACE-SPAN-FLAGS in lower-case
// hexadecimal digits, with a trace and a span that are not zero. Version ff is invalid.
func validTraceParent(text string) bool {
	const form = "00-11111111111111111111111111111111-2222222222222222-00"
	if len(text) != len(form) || text[:2] == "ff" {
		return false
	}
	var trace, span bool // not zero
	for i := range len(text) {
		c := text[i]
		switch digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'; {
		case digit == (form[i] == '-'), !digit && c != '-':
			return false
		case form[i] == '1':
			trace = trace || c != '0'
		case form[i] == '2':
			span = span || c != '0'
		}
	}
	return trace && span
}
