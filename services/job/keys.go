package job

import (
	"container/list"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

// fingerprint identifies a spec.
type fingerprint [sha256.Size]byte

// fingerprintOf depends on the fields of a spec that this version knows, and not on the
// order of the labels.
func fingerprintOf(spec *publicpb.JobSpec) fingerprint {
	canonical, err := proto.MarshalOptions{Deterministic: true}.Marshal(&publicpb.JobSpec{
		JobType: spec.GetJobType(), WorkDurationMs: spec.GetWorkDurationMs(),
		PayloadSizeBytes: spec.GetPayloadSizeBytes(), Labels: spec.GetLabels(),
	})
	if err != nil {
		panic(err) // only invalid UTF-8 fails, and gRPC has already rejected that
	}
	return sha256.Sum256(canonical)
}

type keyEntry struct {
	mark fingerprint
	job  *record
}

// keyCache remembers a bounded number of keys, first in, first out.
type keyCache struct {
	most    int
	entries map[string]*list.Element
	age     *list.List // namedEntry values, oldest first
}

type namedEntry struct {
	key string
	keyEntry
}

func newKeyCache(most int) *keyCache {
	return &keyCache{most: most, entries: make(map[string]*list.Element), age: list.New()}
}

func (c *keyCache) get(key string) (keyEntry, bool) {
	e, ok := c.entries[key]
	if !ok {
		return keyEntry{}, false
	}
	return e.Value.(namedEntry).keyEntry, true
}

func (c *keyCache) put(key string, entry keyEntry) {
	for c.age.Len() >= c.most {
		c.remove(c.age.Front())
	}
	c.entries[key] = c.age.PushBack(namedEntry{key, entry})
}

// dropIf forgets a key if it belongs to a job.
func (c *keyCache) dropIf(key string, job *record) {
	if e, ok := c.entries[key]; ok && e.Value.(namedEntry).job == job {
		c.remove(e)
	}
}

func (c *keyCache) remove(e *list.Element) {
	delete(c.entries, e.Value.(namedEntry).key)
	c.age.Remove(e)
}
