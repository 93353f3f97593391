package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := lab.Options{}.FromEnvironment(os.Getenv)
	if err == nil {
		var l *lab.Lab
		l, err = lab.New(o)
		if err == nil {
			switch os.Args[1] {
			case "hosts":
				var img string
				img, err = l.Prepare(ctx)
				if err == nil {
					err = l.StartHosts(ctx, img)
				}
			case "up":
				err = l.Up(ctx)
			case "down":
				err = l.Down(ctx)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
