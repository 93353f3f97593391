package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/manifests"
)

const usage = `Usage: release COMMAND [FLAG...] FOLDER

  manifests  write the files for clusterctl into FOLDER
  build      write a release into FOLDER; a release there is replaced
  packages   write only the agent's packages for this machine's architecture into FOLDER
  images     add the images that an installation needs to the release in FOLDER
  verify     check the release in FOLDER
  publish    push the images of the release in FOLDER to a registry

release COMMAND -help lists the flags.
`

// versions are semantic versions as clusterctl wants them.
var versions = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	b := &builder{}
	var registry, output, mirror, further string
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	var do func(ctx context.Context, folder string) error
	switch args[0] {
	case "packages":
		flags.StringVar(&b.root, "root", ".", "root `FOLDER` of the checkout")
		flags.StringVar(&b.version, "version", "", "`VERSION` of the packages, such as v0.1.0")
		do = b.packages
	case "manifests", "build":
		flags.StringVar(&b.root, "root", ".", "root `FOLDER` of the checkout")
		flags.StringVar(&b.version, "version", "", "`VERSION` of the release, such as v0.1.0")
		flags.StringVar(&b.image, "image", "", "the manager's `IMAGE`, without tag")
		flags.StringVar(&b.kustomize, "kustomize", "kustomize", "`COMMAND` that runs kustomize")
		do = b.manifests
		if args[0] == "build" {
			do = b.build
		}
	case "images":
		flags.StringVar(&b.root, "root", ".", "root `FOLDER` of the checkout")
		flags.StringVar(&mirror, "mirror", "", "`HOST[:PORT]/PATH` of a registry that has the images of all registries; blank copies from these")
		flags.StringVar(&further, "further", "", "`FILE` with further images, one in a line")
		do = func(ctx context.Context, folder string) error { return b.addImages(ctx, folder, mirror, further) }
	case "verify":
		do = func(_ context.Context, folder string) error { return verify(folder) }
	case "publish":
		flags.StringVar(&registry, "registry", "", "`HOST[:PORT]/PATH` that the images are pushed below")
		flags.StringVar(&output, "output", "", "`FOLDER` for the files for clusterctl that name the pushed image")
		do = func(ctx context.Context, folder string) error { return publish(ctx, folder, registry, output) }
	default:
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("there is no command %q", args[0])
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%s needs one folder, not %q", args[0], flags.Args())
	}
	return do(ctx, flags.Arg(0))
}

// check returns an error unless the release can have its version and image.
func (b *builder) check() error {
	if !versions.MatchString(b.version) {
		return fmt.Errorf("the version must be a semantic one with a v, such as v0.1.0, not %q", b.version)
	}
	if b.image == "" || strings.ContainsAny(b.image, " @") {
		return fmt.Errorf("the image must be one without tag and digest, not %q", b.image)
	}
	return manifests.CheckSeries(b.root, b.version)
}

// say prints what goes on.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "==> %s %s\n", time.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
