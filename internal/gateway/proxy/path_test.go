package proxy

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestTargetOf(t *testing.T) {
	for path, want := range map[string]string{
		"/clusters/shop/c1/":                                     "shop/c1 /",
		"/clusters/shop/c1/api/v1/nodes":                         "shop/c1 /api/v1/nodes",
		"/clusters/shop/c1/apis/apps/v1/":                        "shop/c1 /apis/apps/v1/",
		"/clusters/shop/c1.example/readyz":                       "shop/c1.example /readyz",
		"/clusters/shop/c1/proxy/http:a%2Fb:80/x%20":             "shop/c1 /proxy/http:a%2Fb:80/x%20",
		"/clusters/shop/c1":                                      "",
		"/clusters/shop//api":                                    "",
		"/clusters//c1/api":                                      "",
		"/clusters/sh%6Fp/c1/api":                                "",
		"/clusters/shop%2Fc1/api/v1":                             "",
		"/clusters/../c1/api":                                    "",
		"/clusters/shop/c1/../c2/api":                            "",
		"/clusters/shop/c1/%2e%2e/c2/api":                        "",
		"/clusters/shop/c1/api/%2E/v1":                           "",
		"/clusters/shop/c1/a%2F..%2Fb":                           "",
		"/clusters/shop/c1//api":                                 "",
		"/clusters/shop/c1/api//v1":                              "",
		"/clusters/shop/c1/%2Fapi":                               "",
		"/Clusters/shop/c1/api":                                  "",
		"/api/v1/nodes":                                          "",
		"/clusters/Shop/c1/api":                                  "",
		"/clusters/shop/c1/" + strings.Repeat("a", maxPathBytes): "",
	} {
		u, err := url.Parse("https://gateway" + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := targetOf(u)
		if (err != nil) != (want == "") {
			t.Errorf("%.60s: %+v, %v", path, got, err)
			continue
		}
		if err == nil && got.cluster.String()+" "+got.rawPath != want {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
}

func TestRedirectsStayInside(t *testing.T) {
	for location, want := range map[string]string{
		"/api/v1/next?a=b#c":                       "/clusters/shop/c1/api/v1/next?a=b#c",
		"https://kubernetes.default.svc/api":       "/clusters/shop/c1/api",
		"/api/v1/namespaces/a/services/http:b%2Fc": "/clusters/shop/c1/api/v1/namespaces/a/services/http:b%2Fc",
		"/a%20b/":                           "/clusters/shop/c1/a%20b/",
		"https://elsewhere.example.com/api": "https://elsewhere.example.com/api",
		"//elsewhere.example.com/api":       "//elsewhere.example.com/api",
		"next":                              "next",
	} {
		header := http.Header{"Location": {location}}
		keepInside(header, "kubernetes.default.svc", types.NamespacedName{Namespace: "shop", Name: "c1"})
		if got := header.Get("Location"); got != want {
			t.Errorf("%s became %s, want %s", location, got, want)
		}
	}
}
