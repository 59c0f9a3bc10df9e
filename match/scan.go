package match

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
)

// scanner tokenizes JSON text that is known to be well-formed.
type scanner struct {
	text []byte
	at   int
}

// peek returns the first character of the next token.
func (s *scanner) peek() byte {
	for s.at < len(s.text) && space(s.text[s.at]) {
		s.at++
	}
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// took consumes the next token if it is this character.
func (s *scanner) took(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// null consumes the next value if it is null.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.skip()
	return true
}

// skip consumes the next value, whatever it is.
func (s *scanner) skip() {
	for depth := 0; ; {
		switch s.peek() {
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			depth--
			s.at++
		case ',', ':':
			s.at++
		case '"':
			s.quoted()
		default:
			s.plain()
		}
		if depth == 0 {
			return
		}
	}
}

// quoted consumes a string with its quotes.
func (s *scanner) quoted() []byte {
	start := s.at
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.text[start:s.at]
}

// plain consumes a number, true, false or null.
func (s *scanner) plain() []byte {
	start := s.at
	for s.at < len(s.text) && !space(s.text[s.at]) && strings.IndexByte(",]}", s.text[s.at]) < 0 {
		s.at++
	}
	return s.text[start:s.at]
}

func space(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// unquote decodes a quoted string. It is not ok if half of a surrogate pair is missing,
// because UTF-8 cannot encode that.
func unquote(quoted []byte) (text string, ok bool) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", false
	}
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			continue
		}
		i++
		if inner[i] != 'u' {
			continue
		}
		r := unit(inner[i+1:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 >= len(inner) || inner[i+1] != '\\' || inner[i+2] != 'u' || !paired(r, unit(inner[i+3:])) {
			return "", false
		}
		i += 6
	}
	return text, true
}

// unit parses the four digits of an escaped UTF-16 code unit.
func unit(digits []byte) rune {
	v, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // well-formed
	return rune(v)
}

func paired(high, low rune) bool { return utf16.DecodeRune(high, low) != '\uFFFD' }

// decoder decodes values and reports invalid ones with their path.
type decoder struct {
	scanner
	checker
}

// wrong reports that the next value has the wrong form, and skips it.
func (d *decoder) wrong(want string) {
	d.fault("", "is not %s", want)
	d.skip()
}

// members calls read for each member of an object, with its path entered.
func (d *decoder) members(read func(name string)) {
	if d.peek() != '{' {
		d.wrong("an object")
		return
	}
	d.at++
	for !d.took('}') {
		d.took(',')
		d.peek()
		name, ok := unquote(d.quoted())
		d.took(':')
		d.enter(label(name))
		if ok {
			read(name)
		} else {
			d.fault("", "has a name with half of a surrogate pair")
			d.skip()
		}
		d.leave()
	}
}

// entries calls read for each entry of a list, with its path entered.
func (d *decoder) entries(read func()) {
	if d.peek() != '[' {
		d.wrong("a list")
		return
	}
	d.at++
	for i := 0; !d.took(']'); i++ {
		d.took(',')
		d.enterAt(i)
		read()
		d.leave()
	}
}

func (d *decoder) text(into *string) {
	if d.peek() != '"' {
		d.wrong("a string")
		return
	}
	text, ok := unquote(d.quoted())
	if !ok {
		d.fault("", "has half of a surrogate pair")
	}
	*into = text
}

// integer decodes a plain integer. One that overflows becomes the largest or smallest
// integer, which is outside every range.
func (d *decoder) integer(into *int64) {
	c := d.peek()
	if c != '-' && (c < '0' || c > '9') {
		d.wrong("an integer")
		return
	}
	literal := string(d.plain())
	v, err := strconv.ParseInt(literal, 10, 64)
	if err != nil && v != math.MaxInt64 && v != math.MinInt64 { // an error other than overflow
		d.fault("", "%.64s is not a plain integer", literal)
	}
	*into = v
}

func (d *decoder) hex(into *Hex) {
	var text string
	before := len(d.faults)
	d.text(&text)
	b, err := hex.DecodeString(text)
	if err != nil && len(d.faults) == before {
		d.fault("", "%.64q is not hexadecimal: %v", text, err)
	}
	if len(b) > 0 {
		*into = b
	}
}

// named decodes one of the given names.
func (d *decoder) named(names []string) int {
	var name string
	before := len(d.faults)
	d.text(&name)
	i, err := parse("", names, name)
	if err != nil && len(d.faults) == before {
		d.fault("", "%s", notOneOf(name, names))
	}
	return i
}

func (d *decoder) kind(into *Kind)     { *into = Kind(d.named(kindNames[:])) }
func (d *decoder) status(into *Status) { *into = Status(d.named(statusNames[:])) }

func (d *decoder) kinds(into *[]Kind) {
	d.entries(func() {
		if i := d.named(kindNames[:]); i > 0 {
			*into = append(*into, Kind(i))
		}
	})
}

func (d *decoder) texts(into *[]string) {
	d.entries(func() {
		var text string
		d.text(&text)
		*into = append(*into, text)
	})
}

// amounts decodes an object of integers with any names into a map, and keeps the other
// entries.
func (d *decoder) amounts(into *map[string]int64) {
	given := make(map[string]bool)
	d.members(func(name string) {
		if given[name] {
			d.fault("", "is given more than once")
			d.skip()
			return
		}
		given[name] = true
		var v int64
		d.integer(&v)
		if *into == nil {
			*into = make(map[string]int64)
		}
		(*into)[name] = v
	})
}
