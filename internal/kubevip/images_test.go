package kubevip_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
)

func TestThreat51_ImagePolicy(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct {
		repositories []string
		digest       bool
		image        string
		want         string
	}{
		"no policy":                        {nil, false, "evil.example.com/x:v1", ""},
		"no policy, unreadable":            {nil, false, "NO/image", ""},
		"the repository":                   {[]string{"ghcr.io/kube-vip/kube-vip"}, false, "ghcr.io/kube-vip/kube-vip:v0.9.1", ""},
		"the default":                      {[]string{"ghcr.io/kube-vip/kube-vip"}, false, "", ""},
		"the default is elsewhere":         {[]string{"registry.example.com"}, false, "", "Image ghcr.io/kube-vip/kube-vip:v0.9.1 is in none"},
		"the default has no digest":        {nil, true, "", "has no digest"},
		"below a repository":               {[]string{"registry.example.com/mirror/"}, false, "registry.example.com/mirror/kube-vip:v1", ""},
		"below a registry":                 {[]string{"registry.example.com:5000"}, false, "registry.example.com:5000/kube-vip", ""},
		"below a registry, localhost":      {[]string{"localhost"}, false, "localhost/kube-vip", ""},
		"one of several":                   {[]string{"a.example.com/x", "b.example.com/y"}, false, "b.example.com/y:v1", ""},
		"the same beginning":               {[]string{"ghcr.io/kube-vip/kube-vip"}, false, "ghcr.io/kube-vip/kube-vip-evil:v1", "is in none"},
		"a registry of the same beginning": {[]string{"ghcr.io"}, false, "ghcr.io.evil.example.com/kube-vip:v1", "is in none"},
		"another port":                     {[]string{"registry.example.com"}, false, "registry.example.com:5000/kube-vip", "is in none"},
		"another registry":                 {[]string{"ghcr.io/kube-vip/kube-vip"}, false, "evil.example.com/ghcr.io/kube-vip/kube-vip:v1", "is in none"},
		"Docker Hub in short":              {[]string{"docker.io/kubevip/kube-vip"}, false, "kubevip/kube-vip:v1", ""},
		"Docker Hub is not GitHub":         {[]string{"ghcr.io/kube-vip/kube-vip"}, false, "kube-vip/kube-vip:v0.9.1", "is in none"},
		"unreadable":                       {[]string{"ghcr.io/kube-vip/kube-vip"}, false, "ghcr.io/kube-vip/kube-vip:v1:v2", "can't be read"},
		"a way up":                         {[]string{"ghcr.io/kube-vip"}, false, "ghcr.io/kube-vip/../evil:v1", "can't be read"},
		"a line break":                     {[]string{"ghcr.io/kube-vip"}, false, "ghcr.io/kube-vip/x\n:v1", "can't be read"},
		"a digest":                         {nil, true, "evil.example.com/x" + digest, ""},
		"a tag and a digest":               {[]string{"ghcr.io"}, true, "ghcr.io/kube-vip/kube-vip:v0.9.1" + digest, ""},
		"a tag without a digest":           {[]string{"ghcr.io"}, true, "ghcr.io/kube-vip/kube-vip:v0.9.1", "has no digest"},
		"a digest that is too short":       {nil, true, "ghcr.io/kube-vip/kube-vip@sha256:0123", "can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy, err := kubevip.NewImagePolicy(test.repositories, test.digest)
			g.Expect(err).NotTo(HaveOccurred())
			why := policy.Refusal(&infrav1.EndpointVIP{Image: test.image})
			if test.want == "" {
				g.Expect(why).To(BeEmpty())
			} else {
				g.Expect(why).To(ContainSubstring(test.want))
			}
		})
	}
}

func TestImagePolicyThatCantBeRead(t *testing.T) {
	for _, text := range []string{"", "/", "a b", "example.com/NO", "ghcr.io/kube-vip/kube-vip:v1", "ghcr.io/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"} {
		_, err := kubevip.NewImagePolicy([]string{text}, false)
		NewWithT(t).Expect(err).To(HaveOccurred(), "%q", text)
	}
}
