package worker

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// words matches what is looked for in a payload. Shorter words say nothing.
var words = regexp.MustCompile(`[\pL\pN_]{3,}`)

// quotable returns the first line of a message for the log, without the words that are also in
// a value of the payload: logs hold no payloads.
func (r *Run) quotable(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	quoted := make(map[string]bool) // words of the line; true if the payload has them too
	for _, word := range words.FindAllString(line, -1) {
		quoted[word] = false
	}
	d := json.NewDecoder(bytes.NewReader(r.job.Spec.Payload.Data))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		value = string(r.job.Spec.Payload.Data)
	}
	mark(quoted, value)
	return words.ReplaceAllStringFunc(line, func(word string) string {
		if quoted[word] {
			return "[payload]"
		}
		return word
	})
}

// mark marks the words that are in the values of a decoded payload.
func mark(quoted map[string]bool, value any) {
	switch v := value.(type) {
	case json.Number:
		mark(quoted, v.String())
	case string:
		for _, word := range words.FindAllString(v, -1) {
			if _, ok := quoted[word]; ok {
				quoted[word] = true
			}
		}
	case []any:
		for _, item := range v {
			mark(quoted, item)
		}
	case map[string]any:
		for _, item := range v {
			mark(quoted, item)
		}
	}
}
