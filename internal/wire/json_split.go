package wire

import (
	"bytes"
	"encoding/json"
)

// The functions below split JSON text that is known to be valid.

// plainString returns the string that a JSON text is, unless it has escapes or is no string.
func plainString(text []byte) (s string, ok bool) {
	if len(text) < 2 || text[0] != '"' || bytes.IndexByte(text, '\\') >= 0 {
		return "", false
	}
	return string(text[1 : len(text)-1]), true
}

// members calls f with every member of an object, in order.
func members(text []byte, f func(name string, value []byte)) {
	for i := skipSpace(text, 1); i < len(text) && text[i] == '"'; {
		end := stringEnd(text, i)
		name, plain := plainString(text[i : end+1])
		if !plain {
			_ = json.Unmarshal(text[i:end+1], &name) // known to be valid
		}
		i = skipSpace(text, end+1) // the colon
		i = skipSpace(text, i+1)
		end = valueEnd(text, i)
		f(name, text[i:end])
		i = skipSpace(text, end)
		if i < len(text) && text[i] == ',' {
			i = skipSpace(text, i+1)
		}
	}
}

// elements calls f with every element of an array, in order.
func elements(text []byte, f func(i int, value []byte)) {
	n := 0
	for i := skipSpace(text, 1); i < len(text) && text[i] != ']'; n++ {
		end := valueEnd(text, i)
		f(n, text[i:end])
		i = skipSpace(text, end)
		if i < len(text) && text[i] == ',' {
			i = skipSpace(text, i+1)
		}
	}
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// valueEnd returns the index after the value that starts at i.
func valueEnd(text []byte, i int) int {
	depth := 0
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i)
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of the enclosing value
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}
