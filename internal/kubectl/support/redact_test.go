package support

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// secrets are what must be in no archive. Each has a shape of its own.
func secrets() map[string]string {
	return map[string]string{
		"registration token":  "Zk3vQ0c1mTqY7uXb2Lr9aN5sWd8eFh4gJi6kOp_t-Ax",
		"bootstrap token":     "abcdef.0123456789abcdef",
		"JWT":                 "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl",
		"private key":         "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\n-----END EC PRIVATE KEY-----",
		"password in a URL":   "https://user:hunter2@registry.example.com/x",
		"password":            "password=hunter2",
		"bearer":              "Authorization: Bearer hunter2",
		"flag":                "kubeadm join --token hunter2 --discovery-token hunter2",
		"key of certificates": "--certificate-key hunter2",
		"JSON":                `{"msg":"x","token":"hunter2"}`,
		"JSON in a text":      `{\"access_key\": \"hunter2\"}`,
		"kubeconfig":          strings.Repeat("QUJD", 60),
	}
}

func TestThreat85_TextsLoseSecrets(t *testing.T) {
	for name, secret := range secrets() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text := newRedactor().text("before " + secret + " after")
			g.Expect(text).To(And(HavePrefix("before "), ContainSubstring(leftOut)))
			for _, part := range []string{"hunter2", "Zk3vQ", "0123456789abcdef", "eyJ", "MHcCAQ", "QUJD"} {
				g.Expect(text).NotTo(ContainSubstring(part))
			}
		})
	}
}

// What a reader needs stays.
func TestTextsStay(t *testing.T) {
	for _, text := range []string{
		"Host berlin-rack-7-box-12-of-the-second-row-on-the-left is not connected",
		"its key is sha256:" + strings.Repeat("0a", 32),
		"None of 3 hosts can be used: 2 not matching, 1 AgentDisconnected",
		"10.1.1.1:6443 has not answered h2, h3 since 2026-05-04T12:00:00Z",
		"kubelet 1.36.3 at /usr/bin/kubelet; UID 3f0e6f0a-5a39-4e9b-8f3f-0d6b2b3b8f10",
	} {
		NewWithT(t).Expect(newRedactor().text(text)).To(Equal(text))
	}
}

const before = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ElementalHost
metadata:
  name: h1
  annotations:
    cluster.x-k8s.io/paused: ""
    kubectl.kubernetes.io/last-applied-configuration: '{"data":{"x":"hunter2"}}'
  managedFields: [{manager: hunter2}]
spec:
  approval: Approved
  cordon: {reason: Ms Smith is ill}
  template:
    metadata:
      annotations: {a: hunter2}
    spec:
      containers:
        - name: x
          image: registry.example.com/x:1
          env: [{name: PASSWORD, value: hunter2}]
      discovery:
        bootstrapToken: {token: hunter2, apiServerEndpoint: 10.1.1.1:6443}
status:
  tokenSecretRef: {name: berlin-token}
  tokenExpiresAt: "2026-05-04T12:00:00Z"
  conditions:
    - {type: Available, reason: Cordoned, message: "spec.cordon: Ms Smith is ill"}
`

const after = `apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ElementalHost
metadata:
  annotations:
    cluster.x-k8s.io/paused: ""
    kubectl.kubernetes.io/last-applied-configuration: '[redacted]'
  name: h1
spec:
  approval: Approved
  cordon:
    reason: '[redacted]'
  template:
    metadata:
      annotations:
        a: '[redacted]'
    spec:
      containers:
      - env: '[redacted]'
        image: registry.example.com/x:1
        name: x
      discovery:
        bootstrapToken:
          apiServerEndpoint: 10.1.1.1:6443
          token: '[redacted]'
status:
  conditions:
  - message: 'spec.cordon: [redacted]'
    reason: Cordoned
    type: Available
  tokenExpiresAt: "2026-05-04T12:00:00Z"
  tokenSecretRef:
    name: berlin-token
`

func TestThreat85_ObjectsLoseSecrets(t *testing.T) {
	g := NewWithT(t)
	o := map[string]any{}
	g.Expect(yaml.Unmarshal([]byte(before), &o)).To(Succeed())
	newRedactor().object("ElementalHost", o)
	text, err := yaml.Marshal(o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(Equal(after))

	o = map[string]any{"spec": map[string]any{"files": "hunter2"}, "status": map[string]any{"ready": true}}
	newRedactor().object("KubeadmConfig", o)
	g.Expect(o).To(Equal(map[string]any{"status": map[string]any{"ready": true}}), "bootstrap data is left out")
}

// No kind of the archive can hold the secrets of a cluster.
func TestThreat85_Kinds(t *testing.T) {
	g := NewWithT(t)
	for _, k := range kinds() {
		g.Expect(k.Kind).NotTo(Or(Equal("Secret"), Equal("ConfigMap"), HaveSuffix("ConfigTemplate")))
	}
	g.Expect(kinds()).To(ContainElement(HaveField("Kind", "ElementalHost")))
}
