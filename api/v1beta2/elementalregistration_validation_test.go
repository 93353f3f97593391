package v1beta2_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestElementalRegistrationCreate(t *testing.T) {
	testCreations(t, "ElementalRegistration", []creation{
		{name: "no spec"},
		{name: "complete", spec: `spec: {hostTemplate: {labels: {site: berlin}, annotations: {a: "b c"}, namePattern: "edge-{{ .HostID }}"}, token: {ttlSeconds: 60, maxUses: 100}, approval: Manual, readoption: Denied, maxPendingHosts: 5, agent: {version: v1.2.3, binaries: [{architecture: arm64, sha256: "` + strings.Repeat("0f", 32) + `"}]}, endpoint: {url: "https://elemental.example.com:8443"}}`},
		{name: "longest token", spec: `spec: {token: {ttlSeconds: 604800}}`},
		{name: "address as endpoint", spec: `spec: {endpoint: {url: "https://10.0.0.1/"}}`},
		{name: "IPv6 endpoint", spec: `spec: {endpoint: {url: "https://[fd00::1]:443"}}`},

		{name: "token too short", spec: `spec: {token: {ttlSeconds: 59}}`, err: "should be greater than or equal to 60"},
		{name: "token for ever", spec: `spec: {token: {ttlSeconds: 604801}}`, err: "should be less than or equal to 604800"},
		{name: "token of no use", spec: `spec: {token: {maxUses: 0}}`, err: "should be greater than or equal to 1"},
		{name: "unknown approval", spec: `spec: {approval: Never}`, err: `Unsupported value: "Never"`},
		{name: "unknown readoption", spec: `spec: {readoption: Approved}`, err: `Unsupported value: "Approved"`},
		{name: "no pending hosts", spec: `spec: {maxPendingHosts: 0}`, err: "should be greater than or equal to 1"},
		{name: "agent without version", spec: `spec: {agent: {binaries: [{architecture: arm64, sha256: "` + strings.Repeat("0f", 32) + `"}]}}`, err: "agent.version: Required value"},
		{name: "agent of no version", spec: `spec: {agent: {version: latest, binaries: [{architecture: arm64, sha256: "` + strings.Repeat("0f", 32) + `"}]}}`, err: "should match '^v[0-9]+"},
		{name: "agent without binaries", spec: `spec: {agent: {version: v1.2.3, binaries: []}}`, err: "should have at least 1 items"},
		{name: "agent without digest", spec: `spec: {agent: {version: v1.2.3, binaries: [{architecture: arm64}]}}`, err: "sha256: Required value"},
		{name: "agent twice", spec: `spec: {agent: {version: v1.2.3, binaries: [{architecture: arm64, sha256: "` + strings.Repeat("0f", 32) + `"}, {architecture: arm64, sha256: "` + strings.Repeat("0e", 32) + `"}]}}`, err: "Duplicate value"},
		{name: "plain HTTP", spec: `spec: {endpoint: {url: "http://elemental.example.com"}}`, err: "url must be https://host[:port] without a path"},
		{name: "endpoint with a path", spec: `spec: {endpoint: {url: "https://elemental.example.com/api"}}`, err: "url must be https://host[:port] without a path"},
		{name: "endpoint without host", spec: `spec: {endpoint: {url: "https://"}}`, err: "url must be https://host[:port] without a path"},
		{name: "endpoint without scheme", spec: `spec: {endpoint: {url: "elemental.example.com"}}`, err: "url must be https://host[:port] without a path"},
		{name: "endpoint with query", spec: `spec: {endpoint: {url: "https://elemental.example.com?a=b"}}`, err: "url must be https://host[:port] without a path"},
		{name: "endpoint with user", spec: `spec: {endpoint: {url: "https://user:pass@elemental.example.com"}}`, err: "url must be https://host[:port] without a path"},
		{name: "label key", spec: `spec: {hostTemplate: {labels: {"-": b}}}`, err: "keys must be label keys"},
		{name: "label value", spec: `spec: {hostTemplate: {labels: {a: "{{ .x }}"}}}`, err: "spec.hostTemplate.labels.a: Invalid value"},
		{name: "annotation key", spec: `spec: {hostTemplate: {annotations: {"a b": c}}}`, err: "keys must be annotation keys"},
		{name: "pattern too long", spec: `spec: {hostTemplate: {namePattern: ` + long(254) + `}}`, err: "Too long"},
		{name: "unknown field", spec: `spec: {token: {ttl: 1h}}`, err: `unknown field "spec.token.ttl"`},
	})
}

func TestElementalRegistrationDefaults(t *testing.T) {
	for name, spec := range map[string]infrav1.ElementalRegistrationSpec{
		"no spec":  {},
		"no token": {Endpoint: infrav1.RegistrationEndpoint{URL: "https://a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := &infrav1.ElementalRegistration{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}, Spec: spec,
			}
			g.Expect(env.Client(t).Create(t.Context(), r)).To(Succeed())
			g.Expect(r.Spec.Token.TTLSeconds).To(Equal(int32(86400)), "every token expires")
			g.Expect(r.Spec.Token.MaxUses).To(Equal(int32(1)))
			g.Expect(r.Spec.Approval).To(Equal(infrav1.ApprovalAutomatic))
			g.Expect(r.Spec.Readoption).To(Equal(infrav1.ReadoptionDenied), "nothing is stored for a caller without a token")
			g.Expect(r.Spec.MaxPendingHosts).To(Equal(int32(1000)))
		})
	}
}
