package direct_test

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/direct"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

const certified = "ann-oidc@shop/c1"

func TestKubeconfig(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	got := r.request("ann", path+"?user=ann-oidc", nil)
	r.Expect(got.code).To(Equal(http.StatusOK), got.body)
	r.Expect(got.header.Get("Content-Type")).To(Equal("application/yaml"))
	r.Expect(got.header.Get("Cache-Control")).To(Equal("no-store"))
	config, err := clientcmd.Load([]byte(got.body))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(config.CurrentContext).To(Equal("c1"))
	r.Expect(config.Clusters["c1"].Server).To(Equal(gateway + "/clusters/shop/c1"))
	r.Expect(config.Clusters["c1"].CertificateAuthorityData).To(BeEquivalentTo("gateway's CA"))
	r.Expect(config.Clusters["c1-h2"].Server).To(Equal("https://192.0.2.2:6443"))
	r.Expect(config.Clusters["c1-h2"].TLSServerName).To(Equal("kubernetes.default.svc"))
	r.Expect(config.Contexts).To(HaveLen(3))
	r.Expect(config.AuthInfos).To(HaveLen(1))

	is, err := whoami(r.restConfig(config, "c1-h1"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(is.Username).To(Equal("ann@example.org"))
	r.Expect(is.Groups).To(ConsistOf("dev", "ops", "system:authenticated"), "groups of administrators never pass")
	leaf := r.leaf(config.AuthInfos[certified].ClientCertificateData)
	r.Expect(leaf.NotAfter).To(BeTemporally("~", r.began.Add(time.Hour), patience))
	r.Expect(r.lines).To(ConsistOf(And(ContainSubstring(`"user"="ann@example.org"`), ContainSubstring(`"groups"=["dev" "ops"]`),
		ContainSubstring(`"cluster"="shop/c1"`), ContainSubstring(`"keyOfCaller"=false`), ContainSubstring(leaf.SerialNumber.Text(16)))))
	r.Expect(r.lines[0]).NotTo(ContainSubstring("PRIVATE KEY"))
}

// The user of the context through the gateway is the caller's own, in whatever order the
// kubeconfigs are merged.
func TestMerged(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	theirs := filepath.Join(t.TempDir(), "theirs")
	r.Expect(os.WriteFile(theirs, []byte(r.request("ann", path+"?user=ann-oidc", nil).body), 0o600)).To(Succeed())
	own := filepath.Join(t.TempDir(), "own")
	r.Expect(os.WriteFile(own, []byte("apiVersion: v1\nkind: Config\nusers: [{name: ann-oidc, user: {token: secret}}]\n"), 0o600)).To(Succeed())
	for _, order := range [][]string{{own, theirs}, {theirs, own}} {
		rules := &clientcmd.ClientConfigLoadingRules{Precedence: order}
		for name, want := range map[string]string{"c1": "secret", "c1-h1": ""} {
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(config.BearerToken).To(Equal(want), "%s by %s first", name, filepath.Base(order[0]))
			hasCertificate := len(config.CertData) > 0
			r.Expect(hasCertificate).To(Equal(want == ""))
		}
	}
}

func TestNamesOfUsers(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	config := r.kubeconfig("bot", path, nil)
	r.Expect(config.Contexts["c1"].AuthInfo).To(Equal("management:system:serviceaccount:ci:bot"), "without a name the user's")
	is, err := whoami(r.restConfig(config, "c1-h1"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(is.Username).To(Equal("management:system:serviceaccount:ci:bot"), "it is no ServiceAccount of the workload cluster")
	r.Expect(is.Groups).To(ConsistOf("system:authenticated"))
}

func TestTTL(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	config := r.kubeconfig("ann", path+"?user=ann-oidc&ttlSeconds=600", nil)
	r.Expect(r.leaf(config.AuthInfos[certified].ClientCertificateData).NotAfter).To(BeTemporally("~", r.began.Add(10*time.Minute), patience))
	for _, seconds := range []string{"599", "3601", "604801", "-1", "1h", "", "99999999999999999999"} {
		got := r.request("ann", path+"?ttlSeconds="+seconds, nil)
		r.Expect(got.code).To(Equal(http.StatusBadRequest), "%s: %s", seconds, got.body)
		r.Expect(got.body).To(ContainSubstring("ttlSeconds"))
	}
}

// A signer that issues something else than was asked for makes nobody somebody else.
func TestThreat61_SignersThatErr(t *testing.T) {
	other := ecKey(t, elliptic.P256())
	for name, tc := range map[string]struct {
		how     signer
		code    int
		message string
	}{
		"for longer": {lasting(24 * time.Hour), http.StatusInternalServerError, "valid for longer"},
		"another user": {func(_ *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) ([]byte, string) {
			asked.Subject.CommonName = "root"
			return sign(asked, time.Hour)
		}, http.StatusServiceUnavailable, "another key, user or group"},
		"another group": {func(_ *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) ([]byte, string) {
			asked.Subject.Organization = append(asked.Subject.Organization, "system:masters")
			return sign(asked, time.Hour)
		}, http.StatusServiceUnavailable, "another key, user or group"},
		"another key": {func(_ *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) ([]byte, string) {
			asked.PublicKey = other.Public()
			return sign(asked, time.Hour)
		}, http.StatusServiceUnavailable, "another key, user or group"},
		"refuses": {func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) ([]byte, string) {
			return nil, "out of ink"
		},
			http.StatusServiceUnavailable, "the signer refuses: SignerValidationFailure: out of ink"},
	} {
		t.Run(name, func(t *testing.T) {
			startSigner(t, tc.how)
			r := newRig(t)
			got := r.request("ann", path, nil)
			r.Expect(got.code).To(Equal(tc.code), got.body)
			r.Expect(got.body).To(ContainSubstring(tc.message))
			r.Expect(r.lines).To(BeEmpty())
		})
	}
}

func TestRefusals(t *testing.T) {
	key := ecKey(t, elliptic.P256())
	good := encode(t, &x509.CertificateRequest{Subject: ann()}, key)
	forged := append([]byte{}, good...)
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	forged = pem.EncodeToMemory(block)
	without := func(change func(*direct.Cluster)) func(*rig) { return func(r *rig) { change(&r.cluster) } }
	for name, tc := range map[string]struct {
		change  func(*rig)
		method  string
		as, url string
		body    []byte
		header  []string
		code    int
		says    string
	}{
		"nobody":                  {as: "", url: path, code: 401},
		"an unknown token":        {as: "mallory", url: path, code: 401},
		"without the right":       {as: "eve", url: path, code: 403, says: "may not create clusters/kubeconfig"},
		"a reserved user":         {as: "sys", url: path, code: 403, says: "management cluster's own"},
		"as somebody else":        {as: "ann", url: path, header: []string{"Impersonate-User", "root"}, code: 403, says: "can't impersonate"},
		"an unknown cluster":      {as: "ann", url: "/kubeconfigs/shop/c9", code: 404},
		"a cluster of others":     {as: "ann", url: "/kubeconfigs/other/c1", code: 403},
		"no direct access":        {change: without(func(c *direct.Cluster) { c.TTL = 0 }), as: "ann", url: path, code: 403, says: "spec.access.direct"},
		"an unreachable cluster":  {change: func(r *rig) { r.missing = proxy.ErrUnreachable }, as: "ann", url: path, code: 503},
		"no cluster":              {as: "ann", url: "/kubeconfigs/shop", code: 400},
		"a path below":            {as: "ann", url: path + "/x", code: 400},
		"a path up":               {as: "ann", url: "/kubeconfigs/shop/../c1", code: 400},
		"an encoded slash":        {as: "ann", url: "/kubeconfigs/shop%2Fc1", code: 400},
		"an unknown parameter":    {as: "ann", url: path + "?groups=root", code: 400, says: "unknown"},
		"a parameter twice":       {as: "ann", url: path + "?user=a&user=b", code: 400, says: "more than once"},
		"a blank name":            {as: "ann", url: path + "?user=", code: 400},
		"a long name":             {as: "ann", url: path + "?user=" + strings.Repeat("x", 513), code: 400},
		"a name of two lines":     {as: "ann", url: path + "?user=a%0Ab", code: 400},
		"another method":          {method: http.MethodDelete, as: "ann", url: path, code: 405},
		"no PEM":                  {as: "ann", url: path, body: []byte("hello"), code: 400, says: "PEM"},
		"another PEM":             {as: "ann", url: path, body: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), code: 400, says: "PEM"},
		"two requests":            {as: "ann", url: path, body: append(append([]byte{}, good...), good...), code: 400, says: "one PEM block"},
		"garbage in PEM":          {as: "ann", url: path, body: []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), code: 400},
		"a body that is too long": {as: "ann", url: path, body: []byte(strings.Repeat("x", 128<<10+1)), code: 413},
		"a wrong signature":       {as: "ann", url: path, body: forged, code: 400, says: "signature"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tc.change != nil {
				tc.change(r)
			}
			method := tc.method
			if method == "" {
				method = http.MethodGet
				if tc.body != nil {
					method = http.MethodPost
				}
			}
			got := r.send(method, tc.as, tc.url, tc.body, tc.header...)
			r.Expect(got.code).To(Equal(tc.code), got.body)
			r.Expect(got.header.Get("Content-Type")).To(Equal("application/json"), "as API servers answer, so that kubectl shows it")
			r.Expect(got.body).To(And(ContainSubstring(`"kind":"Status"`), ContainSubstring(tc.says)))
			r.Expect(r.lines).To(BeEmpty())
		})
	}
}

// A cluster without a signer keeps nobody waiting for long, and a caller who hangs up leaves
// nothing there.
func TestNoSigner(t *testing.T) {
	steps := clocktesting.NewFakeClock(time.Now())
	r := newRig(t, func(r *rig) { r.clock = steps })
	answers := make(chan answer)
	go func() { answers <- r.request("ann", path, nil) }()
	r.Eventually(func() int {
		select {
		case got := <-answers:
			r.Expect(got.body).To(ContainSubstring("no signer issues certificates"))
			return got.code
		default:
			if steps.HasWaiters() {
				steps.Step(time.Second)
			}
			return 0
		}
	}, patience, 10*time.Millisecond).Should(Equal(http.StatusServiceUnavailable))

	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		defer hangUp()
		r.Eventually(func(g Gomega) { g.Expect(r.requests()).To(HaveLen(1)) }, patience).Should(Succeed())
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.front.URL+path, http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer ann")
	response, err := r.front.Client().Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	r.Expect(err).To(MatchError(context.Canceled))
	r.Eventually(r.requests, patience).Should(BeEmpty())
}

func TestThreat61_RateOfAUser(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	for i := range 10 {
		r.Expect(r.request("ann", path, nil).code).To(Equal(http.StatusOK), fmt.Sprint(i))
	}
	got := r.request("ann", path, nil)
	r.Expect(got.code).To(Equal(http.StatusTooManyRequests))
	r.Expect(got.header.Get("Retry-After")).To(Equal("60"))
	r.Expect(r.request("bot", path, nil).code).To(Equal(http.StatusOK), "each user for itself")
}
