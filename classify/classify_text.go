package classify

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// wordList maps phrases to failure codes. A phrase matches whole words of a normalized
// text; a star at its end matches any ending of the last word.
type wordList []struct{ phrase, code string }

var passingWords = wordList{
	{"rate limit*", "rate_limited"},
	{"rate exceeded", "rate_limited"},
	{"too many requests", "rate_limited"},
	{"throttl*", "rate_limited"},
	{"deadlock*", "deadlock"},
	{"could not serialize access", "deadlock"},
	{"serialization failure", "deadlock"},
	{"lock wait timeout", "deadlock"},
	{"database is locked", "deadlock"},
	{"service unavailable", "unavailable"},
	{"temporarily unavailable", "unavailable"},
	{"temporary failure*", "unavailable"},
	{"try again later", "unavailable"},
	{"overloaded", "unavailable"},
	{"bad gateway", "unavailable"},
	{"code = unavailable", "unavailable"},
	{"code = aborted", "unavailable"},
	{"code = resourceexhausted", "unavailable"},
	{"connection refused", "connection"},
	{"connection reset*", "connection"},
	{"broken pipe", "connection"},
	{"no route to host", "connection"},
	{"network is unreachable", "connection"},
	{"no such host", "connection"},
	{"host not found", "connection"},
	{"server misbehaving", "connection"},
	{"timed out", "timeout"},
	{"i/o timeout", "timeout"},
	{"gateway timeout", "timeout"},
	{"request timeout", "timeout"},
	{"connection timeout", "timeout"},
	{"handshake timeout", "timeout"},
	{"timeout exceeded", "timeout"},
	{"timeout awaiting", "timeout"},
	{"deadline exceeded", "timeout"},
	{"code = deadlineexceeded", "timeout"},
}

var systemWords = wordList{
	{"out of memory", "resources"},
	{"cannot allocate memory", "resources"},
	{"no space left on device", "resources"},
	{"too many open files", "resources"},
	{"executable file not found", "resources"}, // a problem of the worker's machine, not of the job
	{"segmentation fault", "crash"},
	{"segmentation violation", "crash"},
	{"access violation", "crash"},
	{"signal: killed", "crash"},
}

var lastingWords = wordList{
	{"not found", "not_found"},
	{"does not exist", "not_found"},
	{"no such", "not_found"},
	{"no rows in result set", "not_found"},
	{"code = notfound", "not_found"},
	{"permission denied", "denied"},
	{"access denied", "denied"},
	{"access is denied", "denied"},
	{"not permitted", "denied"},
	{"not authorized", "denied"},
	{"unauthorized", "denied"},
	{"forbidden", "denied"},
	{"code = permissiondenied", "denied"},
	{"code = unauthenticated", "denied"},
	{"bad request", "invalid"},
	{"invalid payload", "invalid"},
	{"invalid argument*", "invalid"},
	{"invalid input*", "invalid"},
	{"invalid request", "invalid"},
	{"malformed", "invalid"},
	{"unprocessable*", "invalid"},
	{"validation failed", "invalid"},
	{"validation failure*", "invalid"},
	{"validation error*", "invalid"},
	{"failed validation", "invalid"},
	{"code = invalidargument", "invalid"},
	{"code = unimplemented", "invalid"},
	{"business rule*", "rule_violated"},
	{"violat*", "rule_violated"},
}

func (l wordList) find(text string) (code string, ok bool) {
	for _, w := range l {
		if says(text, w.phrase) {
			return w.code, true
		}
	}
	return "", false
}

// says reports whether a normalized text contains the phrase as whole words.
func says(text, phrase string) bool {
	stem, open := strings.CutSuffix(phrase, "*")
	for from := 0; ; {
		i := strings.Index(text[from:], stem)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(stem)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !inWord(before) && (open || !inWord(after)) {
			return true
		}
		from = start + 1
	}
}

func inWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// plain normalizes a message: lower case, with one space for every run of spaces, hyphens
// and underscores, so that one spelling of a phrase is enough.
func plain(message string) string {
	spaced := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return ' '
		}
		return unicode.ToLower(r)
	}, message)
	return strings.Join(strings.Fields(spaced), " ")
}

// statusIn finds an HTTP status between 400 and 599 in a normalized text: a number of
// three digits after a word that announces it, as in "status 404", "status code: 503" or
// "http/1.1 429". Numbers elsewhere mean something else.
func statusIn(text string) int {
	for i := 0; i+3 <= len(text); i++ {
		if text[i] != '4' && text[i] != '5' || !digit(text[i+1]) || !digit(text[i+2]) {
			continue
		}
		after, _ := utf8.DecodeRuneInString(text[i+3:])
		if inWord(after) || !announcesStatus(text[:i]) {
			continue
		}
		return int(text[i]-'0')*100 + int(text[i+1]-'0')*10 + int(text[i+2]-'0')
	}
	return 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// announcesStatus reports whether the text before a number says that the number is an
// HTTP status.
func announcesStatus(before string) bool {
	lead := strings.TrimRight(before, " :=\"'(")
	if lead == before {
		return false
	}
	lead = lead[max(0, len(lead)-64):] // two words are enough
	words := strings.FieldsFunc(lead, func(r rune) bool { return !inWord(r) && r != '/' && r != '.' })
	if len(words) == 0 {
		return false
	}
	switch last := words[len(words)-1]; last {
	case "status", "statuscode", "http":
		return true
	case "code":
		if len(words) == 1 {
			return false
		}
		word := words[len(words)-2]
		return word == "status" || word == "response" || word == "http"
	default:
		return strings.HasPrefix(last, "http/")
	}
}
