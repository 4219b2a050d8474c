build-address/obj/base/buf.o: src/base/buf.c src/base/buf.h \
 src/base/auto.h src/base/str.h src/base/mem.h
src/base/buf.h:
src/base/auto.h:
src/base/str.h:
src/base/mem.h:
