package impersonator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

const (
	// namespace and name are those of the ServiceAccount in workload clusters.
	namespace = "elemental-system"
	name      = "elemental-proxy"
	// tokenSeconds is how long a token lives. A new one is requested in its last quarter.
	tokenSeconds = 3600
	// checkInterval is how often the rights are checked in the workload cluster, where an
	// administrator may have removed them.
	checkInterval = 10 * time.Minute
	// callTimeout bounds a call of Token, with the wait for other callers: a workload cluster
	// that answers slowly must not collect requests.
	callTimeout = 30 * time.Second
)

// Account is the proxy's ServiceAccount in one workload cluster. It is safe for concurrent use.
type Account struct {
	client client.Client
	clock  clock.PassiveClock
	// turn has one place, for the caller that changes the cluster. It guards what follows.
	turn      chan struct{}
	token     string
	expires   time.Time
	checkedAt time.Time
	// rightsAt is when the right to impersonate each identity was last checked, by roleName.
	rightsAt map[string]time.Time
}

// New returns the account of a workload cluster. The client needs the rights of an
// administrator there, and knows the kinds of core and rbac.authorization.k8s.io.
func New(c client.Client, now clock.PassiveClock) *Account {
	return &Account{client: c, clock: now, turn: make(chan struct{}, 1), rightsAt: map[string]time.Time{}}
}

// Token returns a bearer token that may impersonate the identity. It asks the workload cluster
// only if something is missing or was not checked lately. After an error, what it has created
// stays, and the next call continues.
func (a *Account) Token(ctx context.Context, as proxy.Identity) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for other requests that change the workload cluster's roles: %w", context.Cause(ctx))
	}
	if err := a.ensureAccount(ctx); err != nil {
		return "", err
	}
	if err := a.ensureRight(ctx, as); err != nil {
		return "", err
	}
	return a.ensureToken(ctx)
}

// ensureAccount creates the ServiceAccount with its namespace.
func (a *Account) ensureAccount(ctx context.Context) error {
	if !a.isDue(a.checkedAt) {
		return nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, account} {
		result, err := controllerutil.CreateOrUpdate(ctx, a.client, object, func() error { return nil })
		if err != nil {
			return fmt.Errorf("creating the proxy's ServiceAccount in the workload cluster: %w", err)
		}
		if result == controllerutil.OperationResultCreated {
			// A token is of one ServiceAccount, not of its name.
			a.token = ""
		}
	}
	a.checkedAt = a.clock.Now()
	return nil
}

func (a *Account) isDue(last time.Time) bool {
	return last.IsZero() || a.clock.Since(last) >= checkInterval
}

// ensureToken requests a token if the last one is about to expire.
func (a *Account) ensureToken(ctx context.Context) (string, error) {
	const reserve = tokenSeconds * time.Second / 4
	if a.token != "" && a.clock.Now().Before(a.expires.Add(-reserve)) {
		return a.token, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	requested := a.clock.Now()
	if err := a.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting the proxy's token of the workload cluster: %w", err)
	}
	// The workload cluster's clock may differ: the lifetime counts, not the time.
	lifetime := time.Duration(tokenSeconds) * time.Second
	if spec := request.Spec.ExpirationSeconds; spec != nil && *spec > 0 {
		lifetime = min(lifetime, time.Duration(*spec)*time.Second)
	}
	a.token, a.expires = request.Status.Token, requested.Add(lifetime)
	return a.token, nil
}

// roleName returns the name of the ClusterRole for an identity.
func roleName(as proxy.Identity) string {
	// Marshalling strings can't fail.
	raw, _ := json.Marshal(as)
	sum := sha256.Sum256(raw)
	return name + "-" + hex.EncodeToString(sum[:8])
}
