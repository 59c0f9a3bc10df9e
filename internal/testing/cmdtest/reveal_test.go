package cmdtest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

func TestReveals(t *testing.T) {
	const secret = "s3cr3t?s3cr3t~"
	for _, before := range []string{"", "a", "ab", "abc", "{\"to\":\""} {
		for _, after := range []string{"", "x", "xy", "\"}"} {
			data := []byte(before + secret + after)
			marshalled, err := json.Marshal(map[string]any{"data": data})
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{
				string(data), string(marshalled), base64.RawURLEncoding.EncodeToString(data), fmt.Sprint(data),
				fmt.Sprintf("%x", data), fmt.Sprintf("%X", data), fmt.Sprintf("%#v", data),
			} {
				if cmdtest.Reveals("before "+text+" after", secret) == "" {
					t.Errorf("it does not see the secret in %s", text)
				}
			}
		}
	}
	if form := cmdtest.Reveals("s3cr3t s3cr3t 115,51,99 czNjcjN0", secret); form != "" {
		t.Errorf("it sees a secret %s where there is none", form)
	}
}
