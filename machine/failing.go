package machine

import (
	"strings"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// Retryable reports whether a failure of this category may be tried again under
// p. Whether attempts are left is another question.
func Retryable(f gq.Failure, p *gq.Policy) bool {
	if p.RetryNever {
		return false
	}
	switch f.Category {
	case gq.CategoryTemporary:
		return true
	case gq.CategoryTimeout:
		return p.RetryTimeout
	case gq.CategorySystem:
		return p.RetrySystem
	default:
		return false
	}
}

// Truncate returns s in a form that every store and every API can hold: valid UTF-8
// without NUL (PostgreSQL has no text with NUL), of at most limit bytes. What
// cannot stay becomes U+FFFD; the end is cut off between characters.
func Truncate(s string, limit int) string {
	s = head(s, limit+utf8.UTFMax) // do not clean megabytes to keep a page
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	return head(s, limit)
}

// head is the longest start of s of at most limit bytes that splits no character.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
