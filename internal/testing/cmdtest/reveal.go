package cmdtest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Reveals reports in which form a text contains a secret: as it is, or as a logger or
// formatter writes bytes. It returns "" if the text does not contain it.
func Reveals(text, secret string) string {
	forms := map[string]string{
		"as it is":     secret,
		"in hex":       hex.EncodeToString([]byte(secret)),
		"in upper hex": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"as numbers":   strings.Trim(fmt.Sprint([]byte(secret)), "[]"),
		"as a list":    strings.ReplaceAll(strings.Trim(fmt.Sprint([]byte(secret)), "[]"), " ", ","),
		"in Go syntax": strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(secret)), "[]byte{"), "}"),
	}
	// The base64 form depends on what precedes the secret: the characters at its edges
	// also hold bits of its neighbours and are omitted.
	for before := range 3 {
		code := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + secret))
		first, last := (before*8+5)/6, len(code)
		if (before+len(secret))%3 != 0 {
			last--
		}
		forms[fmt.Sprintf("in base64 after %d", before)] = code[first:last]
		forms[fmt.Sprintf("in URL base64 after %d", before)] = strings.NewReplacer("+", "-", "/", "_").Replace(code[first:last])
	}
	for name, form := range forms {
		if strings.Contains(text, form) {
			return name
		}
	}
	return ""
}
