package worker

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// words matches what is looked for in a payload. Shorter words, and single digits, say nothing.
var words = regexp.MustCompile(`[\pL\pN_]{3,}|\pN{2}`)

// fieldName matches the names of fields, which messages may repeat, among the keys of objects.
var fieldName = regexp.MustCompile(`^[\pL_][\pL\pN_-]*$`)

// quotable returns the first line of a message for the log, without the words that are also in
// the payload of the job or of another one of the same call: logs hold no payloads.
func (r *Run) quotable(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	var quoted map[string]bool
	if r.called != nil {
		quoted = r.called()
	} else {
		quoted = make(map[string]bool) // words of the line; true if the payload has them too
		for _, word := range words.FindAllString(line, -1) {
			quoted[word] = false
		}
		r.payloadWords(func(word string) {
			if _, said := quoted[word]; said {
				quoted[word] = true
			}
		})
	}
	return words.ReplaceAllStringFunc(line, func(word string) string {
		if quoted[word] {
			return "[payload]"
		}
		return word
	})
}

// payloadWords calls found with the words of the payload.
func (r *Run) payloadWords(found func(word string)) {
	d := json.NewDecoder(bytes.NewReader(r.job.Spec.Payload.Data))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		value = string(r.job.Spec.Payload.Data)
	}
	wordsOf(value, found)
}

func wordsOf(value any, found func(word string)) {
	switch v := value.(type) {
	case json.Number:
		wordsOf(v.String(), found)
	case string:
		for _, word := range words.FindAllString(v, -1) {
			found(word)
		}
	case []any:
		for _, item := range v {
			wordsOf(item, found)
		}
	case map[string]any:
		for key, item := range v {
			if !fieldName.MatchString(key) {
				wordsOf(key, found)
			}
			wordsOf(item, found)
		}
	}
}
