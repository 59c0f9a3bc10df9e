package machine

import (
	"strings"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// Retryable reports whether the policy retries failures of a category, if attempts are left.
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

// Truncate returns s as valid UTF-8 without NUL, which PostgreSQL cannot store, truncated
// between characters to at most limit bytes. It replaces invalid bytes with U+FFFD.
func Truncate(s string, limit int) string {
	s = head(s, limit+utf8.UTFMax) // do not clean megabytes to keep a page
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	return head(s, limit)
}

// head returns the longest prefix of s of at most limit bytes that splits no character.
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
