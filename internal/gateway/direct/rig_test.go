package direct_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/direct"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	patience = time.Minute
	path     = "/kubeconfigs/shop/c1"
	gateway  = "https://gateway.example.com"
)

// workload is the API server of the workload cluster.
var workload *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { workload = e }, envtest.WithAuthority()))
}

// rig is a gateway with the cluster shop/c1, and users who authenticate with their name as a
// token.
type rig struct {
	*WithT
	t     *testing.T
	front *httptest.Server
	clock clock.WithTicker
	admin client.Client
	// clusters is the rig itself unless a test replaces it.
	clusters direct.Clusters
	// namespace of cluster c1.
	namespace string

	mu      sync.Mutex
	users   map[string]user.DefaultInfo
	allowed map[string]bool
	cluster direct.Cluster
	// missing is what Clusters returns.
	missing error
	lines   []string
	// began is when the rig was made.
	began time.Time
}

func newRig(t *testing.T, changes ...func(*rig)) *rig {
	t.Helper()
	r := &rig{
		WithT: NewWithT(t), t: t, clock: clock.RealClock{}, admin: workload.Client(t), began: time.Now(), namespace: "shop",
		users: map[string]user.DefaultInfo{
			"ann": {Name: "ann@example.org", Groups: []string{"ops", "dev", "system:authenticated", "system:masters", "kubeadm:cluster-admins"}},
			"bot": {Name: "system:serviceaccount:ci:bot", Groups: []string{"system:serviceaccounts"}},
			"eve": {Name: "eve"},
			"sys": {Name: "system:admin", Groups: []string{"system:masters"}},
		},
		allowed: map[string]bool{"ann@example.org": true, "system:serviceaccount:ci:bot": true, "system:admin": true},
	}
	r.cluster = direct.Cluster{
		TTL: time.Hour, CA: workload.Authority.Certificate, Admin: r.admin,
		Servers: []direct.Server{{Host: "h1", Address: address(workload)}, {Host: "h2", Address: "192.0.2.2:6443"}},
	}
	r.clusters = r
	for _, change := range changes {
		change(r)
	}
	handler, err := direct.New(direct.Options{
		Authenticator: authenticator.RequestFunc(r.authenticate), Authorizer: authorizer.AuthorizerFunc(r.authorize),
		Clusters: r.clusters, URL: gateway, CA: func(context.Context) (string, error) { return "gateway's CA", nil }, Clock: r.clock, Metrics: prometheus.NewRegistry(),
		Audit: funcr.New(func(_, line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lines = append(r.lines, line)
		}, funcr.Options{}),
	})
	r.Expect(err).NotTo(HaveOccurred())
	r.front = httptest.NewServer(handler)
	t.Cleanup(r.front.Close)
	t.Cleanup(func() {
		r.Expect(r.requests()).To(BeEmpty(), "nothing stays in the workload cluster")
	})
	return r
}

// requests returns the requests for certificates in the workload cluster.
func (r *rig) requests() []certificatesv1.CertificateSigningRequest {
	list := &certificatesv1.CertificateSigningRequestList{}
	r.Expect(r.admin.List(context.Background(), list)).To(Succeed())
	return list.Items
}

func address(e *envtest.Environment) string {
	return strings.TrimSuffix(strings.TrimPrefix(e.Config.Host, "https://"), "/")
}

// Direct implements direct.Clusters.
func (r *rig) Direct(_ context.Context, cluster types.NamespacedName) (direct.Cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cluster.String() != "shop/c1" {
		return direct.Cluster{}, proxy.ErrNoCluster
	}
	return r.cluster, r.missing
}

func (r *rig) authenticate(request *http.Request) (*authenticator.Response, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, ok := r.users[strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")]
	return &authenticator.Response{User: &info}, ok, nil
}

func (r *rig) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := fmt.Sprint(a.GetVerb(), " ", a.GetAPIGroup(), " ", a.GetResource(), "/", a.GetSubresource(), " ", a.GetNamespace(), "/", a.GetName())
	if r.allowed[a.GetUser().GetName()] && (what == "create cluster.x-k8s.io clusters/kubeconfig "+r.namespace+"/c1" || what == "create cluster.x-k8s.io clusters/kubeconfig shop/c9") {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// answer is an answer whose body was read.
type answer struct {
	code   int
	header http.Header
	body   string
}

// request sends a request as a user. A body makes it a POST.
func (r *rig) request(as, url string, body []byte, header ...string) answer {
	r.t.Helper()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	return r.send(method, as, url, body, header...)
}

func (r *rig) send(method, as, url string, body []byte, header ...string) answer {
	r.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, r.front.URL+url, strings.NewReader(string(body)))
	r.Expect(err).NotTo(HaveOccurred())
	if as != "" {
		request.Header.Set("Authorization", "Bearer "+as)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := r.front.Client().Do(request)
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	return answer{response.StatusCode, response.Header, string(content)}
}

// kubeconfig requests a kubeconfig, which must succeed.
func (r *rig) kubeconfig(as, url string, body []byte) *clientcmdapi.Config {
	r.t.Helper()
	got := r.request(as, url, body)
	r.Expect(got.code).To(Equal(http.StatusOK), got.body)
	config, err := clientcmd.Load([]byte(got.body))
	r.Expect(err).NotTo(HaveOccurred())
	return config
}

// restConfig returns the client configuration of a context.
func (r *rig) restConfig(config *clientcmdapi.Config, name string) *rest.Config {
	r.t.Helper()
	out, err := clientcmd.NewNonInteractiveClientConfig(*config, name, nil, nil).ClientConfig()
	r.Expect(err).NotTo(HaveOccurred())
	out.QPS = -1
	return out
}

// whoami asks the workload cluster who the user of a configuration is.
func whoami(config *rest.Config) (authenticationv1.UserInfo, error) {
	c, err := client.New(config, client.Options{Scheme: workload.Scheme})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	review := &authenticationv1.SelfSubjectReview{}
	err = c.Create(context.Background(), review)
	return review.Status.UserInfo, err
}

// leaf returns the certificate of a PEM.
func (r *rig) leaf(chain []byte) *x509.Certificate {
	r.t.Helper()
	block, _ := pem.Decode(chain)
	r.Expect(block).NotTo(BeNil())
	leaf, err := x509.ParseCertificate(block.Bytes)
	r.Expect(err).NotTo(HaveOccurred())
	return leaf
}

// signer returns what is to become of an approved request.
type signer func(csr *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) (certificate []byte, failure string)

// honest issues what was asked for, as kube-controller-manager does.
func honest(csr *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) ([]byte, string) {
	return sign(asked, time.Duration(*csr.Spec.ExpirationSeconds)*time.Second)
}

// lasting issues certificates for another time than was asked for.
func lasting(lifetime time.Duration) signer {
	return func(_ *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) ([]byte, string) {
		return sign(asked, lifetime)
	}
}

func sign(asked *x509.CertificateRequest, lifetime time.Duration) ([]byte, string) {
	certificate, err := workload.Authority.Client(asked.Subject, asked.PublicKey, time.Now().Add(lifetime))
	if err != nil {
		return nil, err.Error()
	}
	return certificate, ""
}

// startSigner signs requests of the workload cluster until the test ends.
func startSigner(t *testing.T, how signer) {
	t.Helper()
	c, err := client.NewWithWatch(workload.Config, workload.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(context.Background(), &certificatesv1.CertificateSigningRequestList{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		events.Stop()
		<-ended
	})
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			csr, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if ok && isApproved(csr) {
				if err := serve(c, csr, how); client.IgnoreNotFound(err) != nil {
					t.Errorf("signing: %v", err)
				}
			}
		}
	}()
}

func isApproved(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 && len(csr.Status.Conditions) == 1 &&
		csr.Status.Conditions[0].Type == certificatesv1.CertificateApproved && csr.DeletionTimestamp.IsZero()
}

func serve(c client.Client, csr *certificatesv1.CertificateSigningRequest, how signer) error {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName || len(csr.Spec.Usages) != 2 {
		return errors.New("unexpected signer or usages")
	}
	block, _ := pem.Decode(csr.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	certificate, failure := how(csr, asked)
	if failure != "" {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: failure,
		})
	}
	csr.Status.Certificate = certificate
	return c.Status().Update(context.Background(), csr)
}
