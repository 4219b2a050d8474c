/* atoll-init, whole, as it will stand in a sealed memfd. INIT_FILE comes from the Makefile. */
    .section .rodata
    .balign 4096
    .globl init_image, init_image_end
    .hidden init_image, init_image_end
init_image:
    .incbin INIT_FILE
init_image_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
