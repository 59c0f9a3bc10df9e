package cli

import (
	"strings"
	"unicode"
)

// Printable replaces control characters in untrusted text, and the marks that change the direction
// of what follows, to protect the terminal. It keeps line breaks and tabs.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '�'
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}
