package gqtest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Reveals reports in which form a text contains a secret: as it is, or as a logger
// or a formatter writes bytes. It is empty where the text does not.
func Reveals(text, secret string) string {
	forms := map[string]string{
		"as it is":     secret,
		"in hex":       hex.EncodeToString([]byte(secret)),
		"in upper hex": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"as numbers":   strings.Trim(fmt.Sprint([]byte(secret)), "[]"),
		"as a list":    strings.ReplaceAll(strings.Trim(fmt.Sprint([]byte(secret)), "[]"), " ", ","),
		"in Go syntax": strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(secret)), "[]byte{"), "}"),
	}
	// In base64 it depends on what stands before it: the characters at its edges
	// hold bits of its neighbours and are left out.
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
