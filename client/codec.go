package client

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// workResponse receives the messages of a Work stream.
type workResponse struct {
	jobs   pbconv.JobsResponse
	other  *pb.WorkResponse // not nil if the message has no jobs
	buffer []byte           // reused for every message
}

// maxBuffer is the size of the largest buffer that is reused. Servers send jobs in messages of
// about 1 MiB, unless a single one is larger.
const maxBuffer = 4 << 20

// workCodec is the protobuf codec, except that it decodes jobs directly.
type workCodec struct{}

var protoCodec = encoding.GetCodecV2(grpcproto.Name)

func (workCodec) Name() string { return grpcproto.Name }

func (workCodec) Marshal(v any) (mem.BufferSlice, error) { return protoCodec.Marshal(v) }

func (workCodec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	r, ok := v.(*workResponse)
	if !ok {
		return protoCodec.Unmarshal(data, v)
	}
	n := data.Len()
	if cap(r.buffer) < n {
		r.buffer = make([]byte, n)
	}
	data.CopyTo(r.buffer[:n])
	r.other, err = r.jobs.Decode(r.buffer[:n])
	if cap(r.buffer) > maxBuffer {
		r.buffer = nil
	}
	return err
}

// submittedCodec is the protobuf codec for one call of SubmitBatch, except that it decodes the
// answers directly. results is nil if they are in the message.
type submittedCodec struct{ results []gq.SubmitResult }

func (*submittedCodec) Name() string { return grpcproto.Name }

func (*submittedCodec) Marshal(v any) (mem.BufferSlice, error) { return protoCodec.Marshal(v) }

func (c *submittedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	var whole []byte
	if len(data) == 1 {
		whole = data[0].ReadOnlyData()
	} else {
		whole = data.Materialize()
	}
	results, ok := pbconv.DecodeSubmitted(whole)
	if !ok {
		c.results = nil
		return protoCodec.Unmarshal(data, v)
	}
	c.results = results
	return nil
}
