package count_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/count"
)

func TestOf(t *testing.T) {
	g := NewWithT(t)
	g.Expect(count.Of(0, "token")).To(Equal("0 tokens"))
	g.Expect(count.Of(int32(1), "token")).To(Equal("1 token"))
	g.Expect(count.Of(int64(21), "token")).To(Equal("21 tokens"))
}
