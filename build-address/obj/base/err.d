build-address/obj/base/err.o: src/base/err.c src/base/err.h \
 src/base/auto.h
src/base/err.h:
src/base/auto.h:
