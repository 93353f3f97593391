package review

import (
	"context"
	"crypto/sha256"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Authenticator returns an authenticator of requests, which removes the credentials that it
// has used from the request. Client certificates are verified as verify says, which may know
// no CA. An error that is ErrUnavailable says that the caller is not known; with any other
// error the credentials are refused.
func Authenticator(o Options, verify x509.VerifyOptionFunc) authenticator.Request {
	reviewed := &tokens{asker: newAsker(o.Client), kept: cache.NewLRUExpireCacheWithClock(maxKept, o.Clock)}
	return group.NewAuthenticatedGroupAdder(union.New(
		x509.NewDynamic(verify, x509.CommonNameUserConversion),
		bearertoken.New(reviewed),
		// Browsers can't set headers of a WebSocket's request.
		websocket.NewProtocolAuthenticator(reviewed),
	))
}

var errRefused = errors.New("the management cluster refuses the token")

// tokens implements authenticator.Token.
type tokens struct {
	asker

	kept *cache.LRUExpireCache
}

// AuthenticateToken implements authenticator.Token.
func (t *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	key := sha256.Sum256([]byte(token))
	var u *user.DefaultInfo
	if kept, ok := t.kept.Get(key); ok {
		u, _ = kept.(*user.DefaultInfo)
	} else {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := t.ask(ctx, review); err != nil {
			return nil, false, err
		}
		u = userOf(review.Status)
		t.kept.Add(key, u, keep)
	}
	if u == nil {
		return nil, false, errRefused
	}
	return &authenticator.Response{User: u}, true, nil
}

// userOf returns the user that a review has found, or nil.
func userOf(status authenticationv1.TokenReviewStatus) *user.DefaultInfo {
	if !status.Authenticated {
		return nil
	}
	u := &user.DefaultInfo{Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups, Extra: map[string][]string{}}
	for name, values := range status.User.Extra {
		u.Extra[name] = values
	}
	return u
}
